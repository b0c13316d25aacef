package supervisor

import (
	"maps"
	"slices"
	"testing"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/ledger"
)

// R252: a receipt rests on every blob that it names, the recording of a shell among them.
func TestWhatAReceiptRestsOn(t *testing.T) {
	kept := func(name string) *api.Output {
		return &api.Output{Blob: &api.BlobOutput{BlobRef: "sha256:" + name, SizeBytes: 1}}
	}
	rec, err := ledger.Encode(&ledger.Settled{Receipt: &api.Receipt{IntentID: "i", Payload: api.Payload{Exec: &api.ExecResult{
		Stdout: kept("out"), Stderr: kept("err"), Recording: &api.Recording{Cast: kept("cast")},
		Outputs: []api.Artifact{{Path: "/there", BlobRef: "sha256:file", SizeBytes: 1}, {Path: "/none", ErrorCode: api.CodeNotFound}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	d := newDependencies()
	if err := d.look(7, rec); err != nil {
		t.Fatal(err)
	}
	named := d.all(nil)
	if got := slices.Sorted(maps.Keys(named)); !slices.Equal(got, []string{"sha256:cast", "sha256:err", "sha256:file", "sha256:out"}) {
		t.Errorf("%q", got)
	}
	for ref, on := range named {
		if *on.seq != 7 || on.size != 1 {
			t.Errorf("%s: %+v", ref, on)
		}
	}
}
