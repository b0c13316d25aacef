package stockade.open

deny contains {"code": "address", "subject": "x", "message": "no"} if not public

public if {
	address := input.request.open.labels.address
	net.cidr_is_valid(sprintf("%s/32", [address]))
	not net.cidr_contains("10.0.0.0/8", address)
}
