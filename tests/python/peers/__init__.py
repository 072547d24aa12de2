# SPDX-License-Identifier: Apache-2.0
"""The cases of peer_defects.py. They run in new processes with the original classes or with
libzero's classes of the same names. A plain torch optimizer in one process gives the right
result."""
