package stockade.blob_test

import data.stockade.blob

test_blobs_are_stored_and_fetched if {
	every op in ["blob.put", "blob.get"] {
		decision := blob.decision with input as {"request": {"op": op}}
		decision.allow == true
	}
}

test_another_operation_is_denied if {
	decision := blob.decision with input as {"request": {"op": "host.exec"}}
	decision.allow == false
}
