package sandbox

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The file that is installed says what holds without it, member by member: as it is, and with its comments taken away.
func TestInstalledCeiling(t *testing.T) {
	text, err := os.ReadFile("../packaging/etc/ceiling.json")
	if err != nil {
		t.Fatal(err)
	}
	member := regexp.MustCompile(`(?m)^  // (".*,)$`)
	if n := len(member.FindAll(text, -1)); n < 25 {
		t.Errorf("%d members", n)
	}
	for _, s := range []string{string(text), member.ReplaceAllString(string(text), "  $1")} {
		c, err := DecodeCeiling(strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(DefaultCeiling(), c); diff != "" {
			t.Error(diff)
		}
	}
}
