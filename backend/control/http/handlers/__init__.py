"""Functions that answer the endpoints, one module for each subject: `read_handlers`, …"""
