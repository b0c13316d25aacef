package server

import (
	_ "embed"
	"net/http"
)

// contract is the OpenAPI 3.1 document of the routes. A test makes it from the table and
// the Go types, and fails when it differs, so that the daemon links no generator.
//
//go:embed openapi.json
var contract []byte

func getOpenAPI(c *call) {
	c.w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
	c.w.WriteHeader(http.StatusOK)
	c.w.Write(contract)
}
