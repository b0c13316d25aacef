package supervisor

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stockade-dev/stockade/supervisor/api"
)

// Secret values reach the process that they are for, and neither the journal, the
// blobs, the logs, the input of policy (which the journal rebuilds), nor a listing; no
// unsalted digest of them either.
func TestSecretsStayIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		b := startOn(t, newFake(), t.TempDir()+"/state", func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		defer b.stop()
		canaries := []string{"canary-of-the-session", "canary-of-the-patch", "canary-of-stdin", "canary-of-a-denial", "canary-of-a-fault"}
		id := b.session(func(o *api.SessionOpen) {
			o.Target.Local.Env = map[string]api.EnvValue{"S": {Text: canaries[0], Secret: true}}
		})
		var seen string
		commands["spy"] = func(p *process) exit {
			seen = strings.Join(p.exec.Env, " ") + p.stdin
			return exit{}
		}
		defer delete(commands, "spy")
		patch := func(secret string) map[string]api.EnvValue {
			return map[string]api.EnvValue{"X_1": {Text: secret, Secret: true}}
		}
		b.execute(api.Exec{SessionID: id, Argv: []string{"spy"}, EnvPatch: patch(canaries[1]), Stdin: &api.Stdin{SecretText: &api.InlineText{Text: canaries[2]}}})
		for _, c := range canaries[:3] {
			if !strings.Contains(seen, c) {
				t.Errorf("the process did not get %s", c)
			}
		}
		b.execute(api.Exec{SessionID: id, Argv: []string{"true", "forbidden"}, EnvPatch: patch(canaries[3])})
		b.execute(api.Exec{SessionID: id, Argv: []string{"nope"}, EnvPatch: patch(canaries[4])})
		list, _, err := b.Sessions(t.Context(), &api.Request{Op: api.OpSessionList, Principal: alice, Read: &api.Read{}})
		if err != nil {
			t.Fatal(err)
		}
		b.close(id)
		synctest.Wait() // for the last line of the log

		places := map[string][]byte{"log": log.Bytes(), "listing": []byte(encode(t, list))}
		if err := filepath.WalkDir(b.state, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				places[path], err = os.ReadFile(path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if len(places) < 5 {
			t.Errorf("only %d places to look at", len(places))
		}
		for _, c := range canaries {
			sum := sha256.Sum256([]byte(c))
			for _, form := range []string{c, base64.StdEncoding.EncodeToString([]byte(c)), hex.EncodeToString([]byte(c)), hex.EncodeToString(sum[:])} {
				for place, content := range places {
					if bytes.Contains(content, []byte(form)) {
						t.Errorf("%s is in %s as %s", c, place, form)
					}
				}
			}
		}
		// The negative control: what is not secret is found.
		b.execute(api.Exec{SessionID: id, Argv: []string{"true"}, EnvPatch: map[string]api.EnvValue{"A": {Text: "control"}}})
		segment, err := filepath.Glob(filepath.Join(b.state, "journal", "*"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range segment {
			content, _ := os.ReadFile(file)
			found = found || bytes.Contains(content, []byte("control"))
		}
		if !found {
			t.Error("the search finds nothing at all")
		}
	})
}
