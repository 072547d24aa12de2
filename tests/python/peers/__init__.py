# SPDX-License-Identifier: Apache-2.0
"""What peer_defects.py runs: cases on fresh processes, on one side with the originals, on the other
with libzero's classes of the same names, and a plain torch optimizer in one process that says what
is right."""
