# SPDX-License-Identifier: Apache-2.0
"""The version of include/nearlight/version.h; a test compares the two."""

__version__ = "0.1.0"
