# SPDX-License-Identifier: Apache-2.0
"""Sends a plain TCP stream in both directions at once, to measure the maximum throughput of links. One of two hosts
listens at its address, and the other connects to it. Prints the transfer time in seconds.

usage: stream.py listen|connect ADDRESS BYTES
"""

import socket
import sys
import threading
import time

PORT = 29300


def connection(way, address):
    if way == "listen":
        with socket.create_server((address, PORT)) as listener:
            return listener.accept()[0]
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.01)


def exchange(stream, count):
    data, buffer = bytes(1 << 20), bytearray(1 << 20)

    def send():
        for at in range(0, count, len(data)):
            stream.sendall(data[:count - at])

    sender = threading.Thread(target=send)
    sender.start()
    got = 0
    while got < count:
        got += stream.recv_into(buffer, min(len(buffer), count - got)) or sys.exit("the other end has gone")
    sender.join()


if __name__ == "__main__":
    with connection(*sys.argv[1:3]) as stream:
        exchange(stream, 1)  # both sides are connected
        began = time.perf_counter()
        exchange(stream, int(sys.argv[3]))
        print(time.perf_counter() - began)
