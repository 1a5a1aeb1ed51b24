"""What a coordinator prepares: keys, certificates, sealed kits, configuration of the proxy."""
