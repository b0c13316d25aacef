package rego

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// allowed are the builtin functions that a policy may call. The list is positive:
// a builtin that a later OPA adds is absent until somebody reads what it does.
//
// What is missing on purpose: everything that leaves the process or depends on it
// (http.send, net.lookup_ip_addr, opa.runtime, rand, uuid, json.match_schema, which
// fetches remote references), secrets and key material (crypto, io.jwt,
// providers.aws), and what a deadline does not stop, because OPA looks for
// cancellation between expressions only (graph.reachable_paths, bits.lsh,
// regex.find_n and its family, net.cidr_expand, numbers.range, yaml, graphql,
// strings.render_template). time.now_ns is [Input.NowNS].
var allowed = strings.Fields(`
	eq assign equal neq lt lte gt gte internal.member_2 internal.member_3
	plus minus mul div rem abs round ceil floor to_number format_int
	count sum max min sort and or minus intersection union
	bits.and bits.or bits.xor bits.negate bits.rsh
	array.concat array.flatten array.reverse array.slice
	object.filter object.get object.keys object.remove object.subset object.union object.union_n
	json.filter json.patch json.remove json.marshal json.unmarshal json.is_valid walk
	concat contains startswith endswith indexof lower upper replace split sprintf substring internal.template_string
	strings.any_prefix_match strings.any_suffix_match strings.count strings.replace_n strings.reverse strings.split_n
	trim trim_left trim_prefix trim_right trim_space trim_suffix
	glob.match glob.quote_meta regex.is_valid regex.match
	base64.decode base64.encode base64.is_valid hex.decode hex.encode
	is_array is_boolean is_null is_number is_object is_set is_string type_name
	net.cidr_contains net.cidr_intersects net.cidr_is_valid
	semver.compare semver.is_valid units.parse units.parse_bytes graph.reachable
	time.add_date time.clock time.date time.diff time.format time.now_ns
	time.parse_duration_ns time.parse_ns time.parse_rfc3339_ns time.weekday
	print internal.print internal.test_case
	stockade.formed stockade.longer stockade.named stockade.any_contains stockade.slashed stockade.parents stockade.below stockade.capped`)

// Capabilities returns what policies may use: Rego v1 with the allowed builtins, and no network.
func Capabilities() *ast.Capabilities {
	c := *capabilities()
	c.Builtins, c.AllowNet = slices.Clone(c.Builtins), []string{}
	return &c
}

// capabilities are made once, and nobody writes to them: the parser wants them for each module.
var capabilities = sync.OnceValue(func() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool { return !slices.Contains(allowed, b.Name) })
	c.AllowNet = []string{}
	return c
})

// CapabilitiesDigest names what policies may use in this build: two builds that have it in common answer
// alike, as far as builtins go.
var CapabilitiesDigest = sync.OnceValue(func() string {
	text, err := json.Marshal(Capabilities())
	if err != nil {
		panic(err) // OPA's own document
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
})
