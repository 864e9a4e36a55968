package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// isFileName reports whether a file can have this name.
func isFileName(name string) bool {
	return len(name) < 256 && filepath.Base(name) == name && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// FuzzOpen checks that a folder with any one file can be opened: either the file is a chunk, which
// is read and removed by its ID, or it is ignored. A chunk that can be read is the one that the
// file's name says.
func FuzzOpen(f *testing.F) {
	p := signed(frame.GUID{1}, 1, 2, "payload")
	f.Add(p.ID.Destination.String(), fileName(p.ID, 0), p.Bytes)
	f.Add(p.ID.Destination.String(), fileName(p.ID, 0), p.Bytes[:9])
	f.Add(p.ID.Destination.String(), fileName(p.ID, 1<<63), p.Bytes)
	f.Add(p.ID.Destination.String(), fileName(p.ID, 0)+"-0000000000000000", p.Bytes)
	f.Add(p.ID.Destination.String(), tempPrefix+"1", p.Bytes)
	f.Add(p.ID.Destination.String(), strings.ToUpper(fileName(p.ID, 0)), p.Bytes)
	f.Add(frame.GUID{2}.String(), fileName(p.ID, 0), p.Bytes)
	f.Fuzz(func(t *testing.T, folder, name string, content []byte) {
		if !isFileName(folder) || !isFileName(name) {
			return
		}
		dir := t.TempDir()
		path := filepath.Join(dir, folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := New(Options{Dir: dir, Size: MinSize})
		if err != nil {
			t.Fatalf("%q: %v", path, err)
		}
		defer n.store.Close()
		all, err := List(dir)
		if err != nil || len(all) > 1 || n.Counters().Chunks != len(all) {
			t.Fatalf("%q: the node has %d chunks, the folder %v, %v", path, n.Counters().Chunks, all, err)
		}
		for _, k := range all {
			if n.store.file(k.ID, k.Place) != path {
				t.Errorf("%q is listed as %q", path, n.store.file(k.ID, k.Place))
			}
			if b, err := n.store.Read(k.ID, k.Place); err != nil || !bytes.Equal(b, content) {
				t.Errorf("%q: %d bytes, %v, want %d", path, len(b), err, len(content))
			}
			if b, err := n.readVerified(k); err == nil && !bytes.Equal(b, content) {
				t.Errorf("%q: %d verified bytes, want %d", path, len(b), len(content))
			}
			if err := n.store.Remove(k.ID, k.Place); err != nil {
				t.Error(err)
			}
		}
		if left, err := List(dir); err != nil || len(left) > 0 {
			t.Errorf("%q: %v are left, %v", path, left, err)
		}
	})
}
