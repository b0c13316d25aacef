package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stockade-dev/stockade/internal/journal"
)

// What verify says of a journal, and with which status (R255, T195): a journal that nobody
// signed does not pass for one that was, and a note that was kept finds what the files
// alone cannot show.
func TestVerify(t *testing.T) {
	const n = 5
	rows := []struct {
		name   string
		change func(t *testing.T, dir string) // of the journal, which is closed before or after
		live   bool                           // records behind the last checkpoint
		args   string                         // KEPT is a checkpoint over all n records, OTHER one of another journal
		status int
		says   string
	}{
		{name: "closed"},
		{name: "closed, strict", args: "--strict --checkpoint KEPT"},
		{name: "live", live: true, says: "the last 2 of 7 records are under no checkpoint"},
		{name: "live, strict", live: true, args: "--strict", status: exitBad, says: "does not end with a checkpoint"},
		{name: "live, kept", live: true, args: "--checkpoint KEPT"},
		{name: "no checkpoints", change: unsigned, status: exitBad, says: "no checkpoint signs any of the 5 records"},
		{name: "rolled back", change: rolledBack, says: "using the key beside"},
		{name: "rolled back, kept", change: rolledBack, args: "--checkpoint KEPT", status: exitBad, says: "signs 5 records"},
		{name: "another journal's", args: "--checkpoint OTHER", status: exitBad, says: "not a checkpoint of this journal"},
		{name: "no such file", args: "--checkpoint /nonexistent", status: exitUsage},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			state, kept := recordedState(t, n, row.live)
			_, other := recordedState(t, 1, false)
			if row.change != nil {
				row.change(t, filepath.Join(state, "journal"))
			}
			var stderr strings.Builder
			c := &cli{stdout: io.Discard, stderr: &stderr}
			args := strings.NewReplacer("KEPT", kept, "OTHER", other).Replace("receipts verify --state " + state + " " + row.args)
			if status := c.run(t.Context(), strings.Fields(args)); status != row.status || !strings.Contains(stderr.String(), row.says) {
				t.Errorf("status %d, want %d; stderr %q, want %q", status, row.status, stderr.String(), row.says)
			}
		})
	}
}

// recordedState makes a state directory with a journal of n records, all signed, and two
// more behind them if it is live. kept is a file with a copy of the checkpoint over the n.
func recordedState(t *testing.T, n int, live bool) (state, kept string) {
	t.Helper()
	state, kept = t.TempDir(), filepath.Join(t.TempDir(), "kept")
	j, err := journal.Open(filepath.Join(state, "journal"), journal.Options{SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	add := func(count int) {
		for range count {
			if _, err := j.Append(t.Context(), []byte(`{"type":"start"}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(n)
	msg, err := j.Checkpoint()
	if err == nil {
		err = os.WriteFile(kept, msg, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if live {
		add(2)
	} else if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return state, kept
}

// unsigned empties the file of checkpoints.
func unsigned(t *testing.T, dir string) {
	if err := os.Truncate(filepath.Join(dir, "checkpoints"), 0); err != nil {
		t.Fatal(err)
	}
}

// rolledBack replaces a journal and its checkpoints by an earlier state of both, whose key
// is the same.
func rolledBack(t *testing.T, dir string) {
	unsigned(t, dir)
	segments, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	if err := os.Remove(segments[0]); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir, journal.Options{SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append(t.Context(), []byte(`{"type":"start"}`)); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// The last checkpoint is printed from the files, so that it can be kept.
func TestCheckpoint(t *testing.T) {
	state, kept := recordedState(t, 3, true)
	want, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	c := &cli{stdout: &stdout, stderr: &stderr}
	if status := c.run(t.Context(), []string{"receipts", "checkpoint", "--state", state}); status != 0 || stdout.String() != string(want) {
		t.Errorf("status %d, %q, %q", status, stdout.String(), stderr.String())
	}
	unsigned(t, filepath.Join(state, "journal"))
	if status := c.run(t.Context(), []string{"receipts", "checkpoint", "--state", state}); status != exitBad {
		t.Errorf("without checkpoints: status %d", status)
	}
}

// A receipt is proved to somebody who has the public key and nothing else; what is not signed,
// or not as it was, is not (R255, T195).
func TestProve(t *testing.T) {
	state := t.TempDir()
	dir := filepath.Join(state, "journal")
	j, err := journal.Open(dir, journal.Options{SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	add := func(rec string) {
		if _, err := j.Append(t.Context(), []byte(rec)); err != nil {
			t.Fatal(err)
		}
	}
	add(`{"type":"start"}`)
	add(`{"receipt":{"intent_id":"` + intentDone + `","op":"host.exec","outcome":"ok"},"type":"receipt"}`)
	if _, err := j.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	add(`{"receipt":{"intent_id":"` + intentRuns + `","op":"host.exec","outcome":"ok"},"type":"receipt"}`)

	proof := filepath.Join(t.TempDir(), "proof")
	run := func(args ...string) (int, string, string) {
		var stdout, stderr strings.Builder
		c := &cli{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr}
		return c.run(t.Context(), append([]string{"receipts"}, args...)), stdout.String(), stderr.String()
	}
	status, made, stderr := run("prove", "--state", state, intentDone)
	if status != 0 {
		t.Fatal(status, stderr)
	}
	if _, same, _ := run("prove", "--state", state, "1"); same != made {
		t.Errorf("by number: %s", same)
	}
	for _, row := range []struct {
		name   string
		change func(string) string
		status int
		says   string
	}{
		{"whole", func(s string) string { return s }, 0, "record 1 of 2, under a signed checkpoint: receipt"},
		{"another place", func(s string) string { return strings.Replace(s, `"seq": 1`, `"seq": 0`, 1) }, exitBad, ""},
		{"another size", func(s string) string { return strings.Replace(s, `"size": 2`, `"size": 3`, 1) }, exitBad, ""},
		{"no proof", func(s string) string { return "{}" }, exitBad, ""},
	} {
		if err := os.WriteFile(proof, []byte(row.change(made)), 0o600); err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := run("check", "--key", filepath.Join(dir, "key.pub"), proof)
		if status != row.status || !strings.Contains(stdout, row.says) {
			t.Errorf("%s: status %d, %q, %q", row.name, status, stdout, stderr)
		}
	}
	if status, _, stderr := run("prove", "--state", state, intentRuns); status != exitBad || !strings.Contains(stderr, "stockade receipts checkpoint") {
		t.Errorf("unsigned: status %d, %q", status, stderr)
	}
	if status, _, stderr := run("prove", "--state", state, intentOpen); status != exitUnavailable || !strings.Contains(stderr, "not in the journal") {
		t.Errorf("unknown: status %d, %q", status, stderr)
	}
}

// fsck tells of each file what it holds, and what is wrong with it.
func TestFsck(t *testing.T) {
	state, _ := recordedState(t, 5, true)
	run := func(args ...string) (int, string) {
		var stdout strings.Builder
		c := &cli{stdout: &stdout, stderr: io.Discard}
		return c.run(t.Context(), append([]string{"receipts", "fsck", "--state", state}, args...)), stdout.String()
	}
	status, got := run()
	for _, want := range []string{"good   0      7 ", "checkpoints ", "1 signed notes, 2 records behind the last"} {
		if status != 0 || !strings.Contains(got, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, got)
		}
	}
	if status, got := run("--json"); status != 0 || !strings.Contains(got, `"state": "good"`) {
		t.Errorf("status %d, %s", status, got)
	}
	segments, err := filepath.Glob(filepath.Join(state, "journal", "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	f, err := os.OpenFile(segments[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff}, 100); err != nil {
		t.Fatal(err)
	}
	if status, got := run(); status != exitBad || !strings.Contains(got, "damaged") {
		t.Errorf("status %d\n%s", status, got)
	}
}
