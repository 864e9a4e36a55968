package content

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hosttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bytesOf returns arbitrary bytes of a size.
func bytesOf(n int, seed byte) []byte {
	b := make([]byte, n)
	_, _ = mathrand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func manifestOf(t testing.TB, b []byte) *Manifest {
	t.Helper()
	m, err := ManifestOf(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// run runs a peer with a name at a host until the test ends, or stop is called.
func run(t testing.TB, socket string, key ed25519.PrivateKey, source func(*Peer) Source) (p *Peer, stop func()) {
	t.Helper()
	p = New(Options{Host: hosttest.Open(t, socket, key), Within: 2 * time.Second})
	if source != nil {
		p.Source = source(p)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return p, stop
}

// give serves a content.
func give(t testing.TB, socket string, b []byte) (name frame.GUID, stop func()) {
	t.Helper()
	m := manifestOf(t, b)
	_, stop = run(t, socket, m.Key(), func(*Peer) Source { return NewFile(m, bytes.NewReader(b)) })
	return m.Name(), stop
}

// A manifest is decoded as it was encoded, whatever its size, and only its own pieces pass its
// check.
func TestManifest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 1000, PieceSize - 1, PieceSize, PieceSize + 1, 3*PieceSize + 5}).Draw(t, "size")
		b := bytesOf(n, rapid.Byte().Draw(t, "seed"))
		m, err := ManifestOf(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseManifest(m.AppendTo(nil))
		if err != nil || again.Name() != m.Name() || again.Size != int64(n) {
			t.Fatalf("%+v, %v", again, err)
		}
		for i := range m.Pieces {
			piece := b[i*PieceSize:][:m.Length(i)]
			if err := again.Check(i, piece); err != nil {
				t.Fatal(err)
			}
			if err := again.Check(i, append(bytes.Clone(piece), 0)); !errors.Is(err, ErrWrong) {
				t.Fatalf("a piece with a byte more: %v", err)
			}
		}
		if again.Check(-1, nil) == nil || again.Check(len(m.Pieces), nil) == nil {
			t.Fatal("a piece that there is none of")
		}
		if n > 0 {
			b[rapid.IntRange(0, n-1).Draw(t, "byte")]++
			if other, err := ManifestOf(bytes.NewReader(b)); err != nil || other.Name() == m.Name() {
				t.Fatalf("another content has the same name, %v", err)
			}
		}
	})
}

// A long manifest is transferred in parts; a piece with the right hash that is too long is
// rejected.
func TestLongManifest(t *testing.T) {
	m := &Manifest{Size: MaxPieces*PieceSize - 1, Pieces: make([][sha256.Size]byte, MaxPieces)}
	for i := range m.Pieces {
		m.Pieces[i] = sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
	}
	m.Pieces[1] = sha256.Sum256(make([]byte, 2*PieceSize))
	if err := m.Check(1, make([]byte, 2*PieceSize)); !errors.Is(err, ErrWrong) {
		t.Errorf("a piece that is too long: %v", err)
	}
	var parts []byte
	for i := 0; m.part(i) != nil; i++ {
		parts = append(parts, m.part(i)...)
		if size, err := m.length(Part + uint32(i)); err != nil || size != len(m.part(i)) {
			t.Errorf("part %d has %d bytes, %d told, %v", i, len(m.part(i)), size, err)
		}
	}
	if !bytes.Equal(parts, m.AppendTo(nil)) {
		t.Error("the parts are not the whole")
	}
	socket, _ := hosttest.Run(t, host.Options{})
	_, _ = run(t, socket, m.Key(), func(*Peer) Source { return NewFile(m, bytes.NewReader(nil)) })
	asker, _ := run(t, socket, newKey(t), nil)
	got, err := asker.GetManifest(t.Context(), m.Name(), m.Name())
	if err != nil || got.Name() != m.Name() {
		t.Errorf("%v", err)
	}
}

func TestGet(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	for _, size := range []int{0, 1, PieceSize, 40*PieceSize + 17} {
		want := bytesOf(size, 1)
		name, stop := give(t, socket, want)
		asker, _ := run(t, socket, newKey(t), nil)
		var got bytes.Buffer
		last := int64(0)
		if err := asker.Get(t.Context(), name, name, &got, func(written, of int64) {
			if written <= last || of != int64(size) {
				t.Errorf("%d of %d written after %d", written, of, last)
			}
			last = written
		}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) || last != int64(size) {
			t.Errorf("%d bytes of %d, or others; told %d", got.Len(), size, last)
		}
		stop()
	}
}

// giver serves arbitrary data.
type giver func(piece uint32) []byte

func (giver) Prepare(context.Context, frame.GUID, uint32) (int, error) { return PieceSize, nil }

func (g giver) Read(_ frame.GUID, piece uint32) ([]byte, error) { return g(piece), nil }

// A host that serves something else is detected, whatever it serves, and none of it is written.
func TestForger(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	want := bytesOf(3*PieceSize, 1)
	m := manifestOf(t, want)
	other := manifestOf(t, bytesOf(3*PieceSize, 2))
	for name, give := range map[string]giver{
		"another manifest": func(uint32) []byte { return other.AppendTo(nil) },
		"no manifest":      func(uint32) []byte { return []byte("nothing") },
		"another last piece": func(piece uint32) []byte {
			if piece == 2 {
				return bytesOf(PieceSize, 3)
			}
			b, _ := NewFile(m, bytes.NewReader(want)).Read(m.Name(), piece)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, stop := run(t, socket, m.Key(), func(*Peer) Source { return give })
			defer stop()
			asker, _ := run(t, socket, newKey(t), nil)
			var got bytes.Buffer
			if err := asker.Get(t.Context(), m.Name(), m.Name(), &got, nil); !errors.Is(err, ErrWrong) {
				t.Errorf("%v", err)
			}
			if !bytes.HasPrefix(want[:2*PieceSize], got.Bytes()) {
				t.Errorf("%d bytes were written, not of the content", got.Len())
			}
		})
	}
}

// A reader that exceeds its limits, and takes nothing, does not delay others.
func TestGreedy(t *testing.T) {
	t.Parallel()
	socket, _ := hosttest.Run(t, host.Options{})
	want := bytesOf(60*PieceSize, 1)
	name, _ := give(t, socket, want)
	const pieces = 60
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 24 { // what they may have under way is more than there is room for
		greedy := hosttest.Open(t, socket, newKey(t))
		for n := range uint64(200) {
			r := request{Number: n, Content: name, Piece: uint32(n % pieces)}
			if err := greedy.Send(t.Context(), name, frame.ContentRequest, r.appendTo(nil), func(error) {}); err != nil {
				t.Fatal(err)
			}
		}
		all.Go(func() { // half of them take the first that comes, so as to be given a piece
			for range i % 2 {
				if x, err := greedy.Receive(t.Context()); err == nil {
					_ = greedy.Take(x)
				}
			}
		})
	}
	patient, _ := run(t, socket, newKey(t), nil)
	var got bytes.Buffer
	if err := patient.Get(t.Context(), name, name, &got, nil); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes of %d, %v", got.Len(), len(want), err)
	}
}

// A file that was changed or removed is not served.
func TestFileChanged(t *testing.T) {
	b := bytesOf(2*PieceSize, 1)
	m := manifestOf(t, b)
	b[PieceSize]++
	file := NewFile(m, bytes.NewReader(b))
	if _, err := file.Read(m.Name(), 1); !errors.Is(err, ErrWrong) {
		t.Errorf("a changed piece: %v", err)
	}
	if _, err := file.Read(m.Name(), 0); err != nil {
		t.Errorf("the other piece: %v", err)
	}
	if _, err := NewFile(m, bytes.NewReader(b[:PieceSize])).Read(m.Name(), 1); err == nil {
		t.Error("a piece that has gone")
	}
	if _, err := file.Read(m.Name(), 2); !errors.Is(err, ErrAbsent) {
		t.Errorf("a piece there is none of: %v", err)
	}
	if _, err := file.Read(frame.GUID{}, 0); !errors.Is(err, ErrAbsent) {
		t.Errorf("another content: %v", err)
	}
}

// cacheAt runs a cache at a host, and returns its name.
func cacheAt(t testing.TB, socket, dir string) (*Cache, frame.GUID, func()) {
	t.Helper()
	c, err := OpenCache(CacheOptions{Dir: dir, Size: MinCacheSize})
	if err != nil {
		t.Fatal(err)
	}
	p, stop := run(t, socket, newKey(t), c.By)
	return c, p.Host.Name, sync.OnceFunc(func() { stop(); _ = c.Close() })
}

// A cache serves what it has fetched once when no other host has it any more, even after a restart,
// except for what the disk has damaged.
func TestCache(t *testing.T) {
	t.Parallel()
	socket, _ := hosttest.Run(t, host.Options{})
	dir := t.TempDir()
	c, name, stop := cacheAt(t, socket, dir)
	want := bytesOf(20*PieceSize+1, 1)
	content, gone := give(t, socket, want)
	asker, _ := run(t, socket, newKey(t), nil)
	get := func(by frame.GUID) error {
		var got bytes.Buffer
		err := asker.Get(t.Context(), by, content, &got, nil)
		if err == nil && !bytes.Equal(got.Bytes(), want) {
			t.Error("other bytes")
		}
		return err
	}
	if err := get(name); err != nil {
		t.Fatal(err)
	}
	if n := c.Counters(); n.Misses != 22 || n.Failed != 0 || n.Pieces != 22 {
		t.Errorf("%+v, want 22 pieces that were got", n)
	}
	gone()
	if err := get(name); err != nil {
		t.Fatal(err)
	}
	stop()
	c, name, stop = cacheAt(t, socket, dir)
	defer stop()
	if err := get(name); err != nil {
		t.Fatal(err)
	}
	if n := c.Counters(); n.Hits != 22 || n.Misses != 0 || n.Pieces != 22 {
		t.Errorf("%+v, want 22 pieces that were there", n)
	}
	if err := os.WriteFile(filepath.Join(dir, content.String(), "3"), []byte("spoilt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := get(name); !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrNoAnswer) {
		t.Errorf("with a piece that was spoilt: %v", err)
	}
	_, again := give(t, socket, want)
	defer again()
	if err := get(name); err != nil {
		t.Errorf("when somebody has it again: %v", err)
	}
}

// Requests to a cache for a content that no host has do not delay others.
func TestCacheAskedForNothing(t *testing.T) {
	socket, _ := hosttest.Run(t, host.Options{})
	_, name, stop := cacheAt(t, socket, t.TempDir())
	defer stop()
	for range 20 {
		greedy, _ := run(t, socket, newKey(t), nil)
		for n := range 20 {
			q := greedy.question(name, frame.GUID(bytesOf(20, byte(n))), Part)
			if err := greedy.Host.Send(t.Context(), name, frame.ContentRequest, q.appendTo(nil), func(error) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := bytesOf(20*PieceSize, 1)
	content, _ := give(t, socket, want)
	asker, _ := run(t, socket, newKey(t), nil)
	var got bytes.Buffer
	if err := asker.Get(t.Context(), name, content, &got, nil); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes of %d, %v", got.Len(), len(want), err)
	}
}

// A cache keeps to its size, and holds the most recently requested pieces.
func TestCacheForgets(t *testing.T) {
	dir := t.TempDir()
	c, err := OpenCache(CacheOptions{Dir: dir, Size: MinCacheSize})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const most = MinCacheSize / PieceSize
	piece := make([]byte, PieceSize)
	for i := range uint32(most) {
		c.write(entry{piece: i}, piece)
	}
	if !c.lookUp(entry{piece: 0}) {
		t.Error("the first has gone before there are too many")
	}
	for i := range uint32(10) {
		c.write(entry{piece: most + i}, piece)
	}
	if n := c.Counters(); n.Pieces != most || n.Contents != 1 || n.Bytes > MinCacheSize {
		t.Errorf("%+v, want %d pieces of one content", n, most)
	}
	if !c.lookUp(entry{piece: 0}) || c.lookUp(entry{piece: 1}) {
		t.Error("it has not forgotten what was asked for longest ago")
	}
	other := frame.GUID{1}
	c.write(entry{content: other}, piece)
	if n := c.Counters(); n.Contents != 2 {
		t.Errorf("%+v, want two contents", n)
	}
	c.mu.Lock()
	c.remove(entry{content: other})
	c.mu.Unlock()
	if n := c.Counters(); n.Contents != 1 || n.Pieces != most-1 {
		t.Errorf("%+v, want one content, and room for a piece", n)
	}
	c.write(entry{piece: most + 10}, piece)
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(files) != most {
		t.Errorf("%d files, %v, want %d", len(files), err, most)
	}
	for range 3 * most { // small ones count more than they have
		c.write(entry{content: frame.GUID{1}, piece: uint32(mathrand.IntN(1 << 20))}, nil)
	}
	if n := c.Counters(); n.Bytes > MinCacheSize || n.Bytes < MinCacheSize/2 {
		t.Errorf("%+v", n)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add((&Manifest{}).AppendTo(nil))
	f.Add((&Manifest{Size: 5, Pieces: make([][32]byte, 1)}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err == nil && !bytes.Equal(m.AppendTo(nil), b) {
			t.Errorf("%x comes out as %x", b, m.AppendTo(nil))
		}
	})
}

func FuzzMessages(f *testing.F) {
	f.Add((&request{Number: 1, Piece: Part}).appendTo(nil))
	f.Add((&response{Number: 1, Data: []byte("piece")}).appendTo(nil))
	f.Add((&response{Number: 1, Verdict: verdictAbsent}).appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRequest(b); err == nil && !bytes.Equal(r.appendTo(nil), b) {
			t.Errorf("request %x comes out as %x", b, r.appendTo(nil))
		}
		if r, err := parseResponse(b); err == nil && !bytes.Equal(r.appendTo(nil), b) {
			t.Errorf("response %x comes out as %x", b, r.appendTo(nil))
		}
	})
}
