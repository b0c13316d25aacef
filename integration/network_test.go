package integration

// names are those of the tests' internet.
var names = map[string][]string{
	"alpha.test": {"11.0.0.1"}, "shared.test": {"11.0.0.1"}, // two names of one address
	"beta.test": {"11.0.0.2"}, "deep.wild.test": {"11.0.0.3"},
	"metadata.test": {"169.254.169.254"}, "inner.test": {"10.1.2.3"}, "loop.test": {"127.0.0.1"},
}
