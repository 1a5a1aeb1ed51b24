"""What a coordinator makes beforehand: keys, certificates, sealed kits, settings of the proxy."""
