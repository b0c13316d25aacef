package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/stockade-dev/stockade/internal/testbox"
	"github.com/stockade-dev/stockade/supervisor/api"
)

// TestSupportBundleHasNoSecret: secrets in the configuration, in the environment of the supervisor, in the names of its files, in requests and in its log: none is in
// any member of a bundle, which has the configuration, the metrics, the groups, the findings and the log all the same. The search finds each of
// them where it was put. (R090)
func TestSupportBundleHasNoSecret(t *testing.T) {
	needRoot(t)
	const user, token, path, variable, header, request, output = "canaryuser4d1", "canarytoken4d1", "canarypath4d1", "canaryvariable4d1", "canaryheader4d1", "canaryrequest4d1", "canaryoutput4d1"
	secrets := []string{user, token, path, variable, header, request, output}

	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	dir := filepath.Join(t.TempDir(), path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "stockaded.json")
	endpoint := "http://" + user + ":" + token + "@" + strings.TrimPrefix(collector.URL, "http://") + "/v1/traces?key=" + token
	text := fmt.Sprintf(`{"log-level": "debug", "otlp-endpoint": %q, "metrics": "unix:%s/m", "hold": "17s"}`, endpoint, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startWith(t, bin, testbox.Options{Args: []string{"--config", config}, Env: []string{"OTEL_EXPORTER_OTLP_HEADERS=authorization=" + header}})
	c := d.Client()
	session := opened(t, c, nil).SessionID
	r, err := c.Exec(t.Context(), api.Exec{
		SessionID: session, Argv: []string{"sh", "-c", "echo " + output + "; : " + request}, Labels: map[string]string{"job": request},
		EnvPatch: map[string]api.EnvValue{"TOKEN": {Text: token, Secret: true}, "PLAIN": {Text: request}},
	})
	settled(t, r, err)
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte(d.Log()+"time=2026-01-02T03:04:05.000Z level=WARN msg=traces error=\""+token+"\"\npanic: "+request+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	out := filepath.Join(t.TempDir(), "b.tar.gz")
	cmd := exec.Command(filepath.Join(bin, "stockade"), "--socket", d.Socket, "support-bundle", "-o", out, "--state", d.State, "--log", log, "--deep")
	cmd.Env = append(os.Environ(), "STOCKADE_OTHER="+variable)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	files := unpacked(t, out)
	for _, want := range []string{"versions", "host", "capabilities", "policy", "in_flight", "outcomes", "configuration", "metrics", "cgroups", "journal", "fsck", "log"} {
		if !strings.Contains(files["manifest.json"], `"`+want) || len(files[want+".json"])+len(files[want+".txt"]) == 0 {
			t.Errorf("no %s in the bundle: %s", want, files["manifest.json"])
		}
	}
	for _, row := range []struct{ file, want string }{
		{"configuration.json", `"17s"`}, {"configuration.json", `"http:…"`}, {"configuration.json", `OTEL_EXPORTER_OTLP_HEADERS`}, {"configuration.json", `"log_level": "debug"`},
		{"metrics.txt", "stockade_draining 0"}, {"cgroups.json", `"group": "/`}, {"cgroups.json", `"pids.max": "`}, {"cgroups.json", `"program": "stockade-run"`}, {"fsck.json", `"ok": true`}, {"fsck.json", `"digest": "sha256:`},
		{"log.json", "INFO serving socket"},
	} {
		if !strings.Contains(files[row.file], row.want) {
			t.Errorf("%s has no %s: %.2000s", row.file, row.want, files[row.file])
		}
	}
	for name, content := range files {
		for _, secret := range secrets {
			if found(content, secret) {
				t.Errorf("%s is in %s", secret, name)
			}
		}
	}

	// What was looked for is where it was put, and the same search finds it.
	placed := map[string]string{user: text, token: text, path: config, variable: strings.Join(cmd.Env, "\n")}
	if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", d.PID())); err != nil {
		t.Error(err)
	} else {
		placed[header] = string(environ)
	}
	receipts, err := c.ReceiptPage(t.Context(), api.Read{SessionID: session, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	asked, err := json.Marshal(receipts)
	if err != nil {
		t.Fatal(err)
	}
	placed[output] = string(asked)
	processes, err := c.Processes(t.Context(), api.Read{SessionID: session})
	if err != nil {
		t.Fatal(err)
	}
	if asked, err = json.Marshal(processes); err != nil {
		t.Fatal(err)
	}
	placed[request] = string(asked)
	for _, secret := range secrets {
		if !found(placed[secret], secret) {
			t.Errorf("%s was not put anywhere: %.300s", secret, placed[secret])
		}
	}
}

// found reports whether a secret is in a text, as it is or in base64 wherever it begins.
func found(text, secret string) bool {
	if strings.Contains(text, secret) {
		return true
	}
	for skip := range 3 {
		whole := []byte(secret)[skip : skip+(len(secret)-skip)/3*3]
		if strings.Contains(text, base64.StdEncoding.EncodeToString(whole)) {
			return true
		}
	}
	return false
}

// unpacked are the members of a bundle, by name.
func unpacked(t *testing.T, name string) map[string]string {
	t.Helper()
	packed, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "stockade-support/")] = string(content)
	}
}
