package mobilityfirst

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
)

// Chunks go over real switches by a function that runs at two hosts, and what that makes of each arrives once and in order,
// also when the node that works is killed in the middle. A built-in function does its work in the memory that is usual, and what
// it fails on comes back with the reason.
func TestCompute(t *testing.T) {
	begin(t)
	l := lab.New(t, line("mfcompute"))
	control(t, l)
	sockets := map[string]string{}
	for _, host := range []string{"a", "b", "c"} {
		sockets[host], _ = run(t, l.Host(host))
	}
	dir := t.TempDir()
	key, other := filepath.Join(dir, "function"), filepath.Join(dir, "receiver")
	function, receiver := newName(t, key), newName(t, other)
	worked := func(host string) string { return filepath.Join(dir, "worked-"+host) }
	node := func(host string) *testbed.Daemon {
		script := "echo >> " + worked(host) + "; exec gzip -c"
		return program(t, l.Host(host), filepath.Join(dir, host+".log"), "mf", "compute", "--socket", sockets[host], "--name-key", key, "--", "sh", "-c", script)
	}
	nodes := map[string]*testbed.Daemon{"b": node("b"), "c": node("c")}

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	recv := l.Host("b").Command(ctx, selfbuild.Binary(t), "mf", "recv", "--socket", sockets["b"], "--name-key", other)
	var got, said bytes.Buffer
	recv.Stdout, recv.Stderr = &got, &said
	if err := recv.Start(); err != nil {
		t.Fatal(err)
	}
	const chunks, size = 400, 2000
	want := random(t, chunks*size)
	send := l.Host("a").Command(ctx, selfbuild.Binary(t), "mf", "send", "--socket", sockets["a"], "--chunk", "2000", "--through", function, receiver)
	send.Stdin = bytes.NewReader(want)
	var sent bytes.Buffer
	send.Stdout, send.Stderr = &sent, &sent
	if err := send.Start(); err != nil {
		t.Fatal(err)
	}
	calls := func(host string) int {
		b, _ := os.ReadFile(worked(host)) // not there before the first
		return len(b)
	}
	var first string
	err := testbed.PollFor(ctx, patience, "a node works", func() error {
		for host := range nodes {
			if calls(host) >= chunks/10 {
				first = host
				return nil
			}
		}
		return errors.New("none has worked enough")
	})
	if err != nil {
		t.Fatal(err)
	}
	nodes[first].Kill()
	if err := send.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &sent)
	}
	if err := recv.Wait(); err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	t.Logf("%d calls at b, %d at c, which %s was killed of; %s", calls("b"), calls("c"), first, bytes.TrimSpace(sent.Bytes()))
	z, err := gzip.NewReader(&got) // one part after the other
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(z); err != nil || !bytes.Equal(b, want) {
		t.Errorf("%d bytes of %d have come, %v", len(b), len(want), err)
	}
	for host := range nodes {
		if calls(host) == 0 {
			t.Errorf("%s has not worked", host)
		}
	}

	var small, whole bytes.Buffer
	w := gzip.NewWriter(&small)
	if _, err := w.Write(want); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	key = filepath.Join(dir, "gunzip")
	function = newName(t, key)
	program(t, l.Host("c"), filepath.Join(dir, "gunzip.log"), "mf", "compute", "--socket", sockets["c"], "--name-key", key, "--builtin", "decompress")
	recv = l.Host("b").Command(ctx, selfbuild.Binary(t), "mf", "recv", "--socket", sockets["b"], "--name-key", other)
	recv.Stdout = &whole
	if err := recv.Start(); err != nil {
		t.Fatal(err)
	}
	send = l.Host("a").Command(ctx, selfbuild.Binary(t), "mf", "send", "--socket", sockets["a"], "--through", function, receiver)
	send.Stdin = &small
	if out, err := send.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if err := recv.Wait(); err != nil || !bytes.Equal(whole.Bytes(), want) {
		t.Errorf("%d bytes of %d have come, %v", whole.Len(), len(want), err)
	}
	send = l.Host("a").Command(ctx, selfbuild.Binary(t), "mf", "send", "--socket", sockets["a"], "--through", function, receiver)
	send.Stdin = strings.NewReader("this is not compressed")
	if out, err := send.CombinedOutput(); err == nil || !strings.Contains(string(out), "gzip: invalid header") {
		t.Errorf("%v: %s", err, out)
	}
}
