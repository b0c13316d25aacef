package testbox

import (
	"os"
	"testing"
)

// What the process sees of itself stays the host's, however many internets there are: the leak check looks there.
func TestInternetIsApart(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("STOCKADE_NOSKIP") == "1" {
			t.Fatal("needs root")
		}
		t.Skip("needs root: it makes namespaces")
	}
	seen := func() (ns string) {
		for _, kind := range []string{"mnt", "net"} {
			link, err := os.Readlink("/proc/self/ns/" + kind)
			if err != nil {
				t.Fatal(err)
			}
			ns += link
		}
		return ns
	}
	before := seen()
	for range 20 {
		i, err := NewInternet(nil)
		if err != nil {
			t.Fatal(err)
		}
		during := seen()
		i.Close()
		if during != before {
			t.Fatalf("%s, before %s", during, before)
		}
	}
}
