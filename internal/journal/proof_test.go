package journal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	stdjson "encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// A third party checks a proof with nothing but what FORMAT.md says, SHA-256 and Ed25519.
func TestProofByThirdParty(t *testing.T) {
	dir, first := trimmed(t, 45, 20)
	known := verifiers(t, dir)
	public := strings.TrimSpace(string(mustRead(t, dir+"/"+publicKeyFile)))
	for seq := first; seq < 45; seq++ {
		p, err := ProveRecord(dir, known, seq)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(p, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		rec, err := thirdParty(data, public)
		if err != nil || !bytes.Equal(rec, record(int(seq))) {
			t.Fatalf("record %d: %q, %v\n%s", seq, rec, err, data)
		}
		for _, change := range []string{`"seq":1`, `"size":4`, `"record":"e`, `"hashes":["`} {
			forged := bytes.Replace(data, []byte(change), []byte(change+"1"), 1)
			if bytes.Equal(forged, data) {
				continue
			}
			if _, err := thirdParty(forged, public); err == nil {
				t.Errorf("record %d: believed with another %s", seq, change)
			}
			if _, err := CheckProof(forged, known); err == nil {
				t.Errorf("record %d: we believe it with another %s", seq, change)
			}
		}
	}
}

func thirdParty(data []byte, public string) ([]byte, error) {
	var p struct {
		Seq, Size  int64
		Record     []byte
		Hashes     [][]byte
		Checkpoint string
	}
	if err := stdjson.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	// The note: its text is signed, and names the size and the root.
	text, signatures, _ := strings.Cut(p.Checkpoint, "\n\n")
	text += "\n"
	signature := strings.Fields(signatures)
	key := strings.SplitN(public, "+", 3) // name, key hash, key
	pub, err := base64.StdEncoding.DecodeString(key[2])
	if err != nil {
		return nil, err
	}
	sig, err := base64.StdEncoding.DecodeString(signature[2])
	if err != nil {
		return nil, err
	}
	if !ed25519.Verify(pub[1:], []byte(text), sig[4:]) {
		return nil, fmt.Errorf("signature")
	}
	var origin, root string
	var size int64
	if _, err := fmt.Sscanf(text, "stockade journal/%s\n%d\n%s\n", &origin, &size, &root); err != nil {
		return nil, err
	}
	// The way from the leaf to the root (RFC 9162, 2.1.3.2).
	h := sha256.Sum256(append([]byte{0}, p.Record...))
	node := func(left, right []byte) {
		h = sha256.Sum256(bytes.Join([][]byte{{1}, left, right}, nil))
	}
	fn, sn := p.Seq, size-1
	for _, sibling := range p.Hashes {
		if sn == 0 {
			return nil, fmt.Errorf("too many hashes")
		}
		if fn&1 == 1 || fn == sn {
			node(sibling, h[:])
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		} else {
			node(h[:], sibling)
		}
		fn, sn = fn>>1, sn>>1
	}
	if sn != 0 || p.Size != size || base64.StdEncoding.EncodeToString(h[:]) != root {
		return nil, fmt.Errorf("the record does not lead to the root")
	}
	return p.Record, nil
}
