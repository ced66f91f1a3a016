"""Rows ``hosts_*``: a program whose hosts are machines made of namespaces, with TLS between them."""
