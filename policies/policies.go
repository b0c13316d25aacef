// Package policies embeds the policy library that decides when the operator names no
// directory of his own. It is data: package rego loads it. README.md says how the
// library is laid out and how to write one's own.
package policies

import "embed"

// FS holds the Rego modules, their tests and their data.
//
//go:embed README.md data.json shape form open exec fs signal blob read workspace approval paths profiles principals tenants labels caps exceptions host_paths network env
var FS embed.FS
