package nodeapi

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/openflow"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func owner(n byte) (ed25519.PrivateKey, frame.GUID) {
	seed := [ed25519.SeedSize]byte{n}
	key := ed25519.NewKeyFromSeed(seed[:])
	return key, record.NameOfOwner(key)
}

// A report is believed if it can be.
func TestCheck(t *testing.T) {
	_, name := owner(1)
	good := func() *Report {
		return &Report{Name: name, Compute: &ComputeReport{Function: "tr", Workers: 1}}
	}
	for what, change := range map[string]func(*Report){
		"no name":        func(r *Report) { r.Name = frame.GUID{} },
		"no kind":        func(r *Report) { r.Compute = nil },
		"two kinds":      func(r *Report) { r.Cache = &CacheReport{} },
		"many addresses": func(r *Report) { r.MACs = make([]openflow.MAC, MaxMACs+1) },
		"negative":       func(r *Report) { r.Compute.Queued = -1 },
		"too much load":  func(r *Report) { r.Compute.Load = 1.01 },
		"no function":    func(r *Report) { r.Compute.Function = "" },
		"long function":  func(r *Report) { r.Compute.Function = strings.Repeat("x", MaxFunction+1) },
		"escapes":        func(r *Report) { r.Compute.Function = "\x1b[2J" },
		"storage":        func(r *Report) { r.Compute, r.Storage = nil, &StorageReport{Bytes: -1} },
		"cache":          func(r *Report) { r.Compute, r.Cache = nil, &CacheReport{Pieces: -1} },
	} {
		r := good()
		if change(r); r.Check() == nil {
			t.Errorf("%s: believed", what)
		}
	}
	for _, r := range []*Report{good(), {Name: name, Storage: &StorageReport{Size: 1}}, {Name: name, Cache: &CacheReport{}}} {
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
}

// What is shown of a text is no longer than it may be, and can be printed.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said, most := rapid.SliceOf(rapid.Byte()).Draw(t, "said"), rapid.IntRange(0, 40).Draw(t, "most")
		got := Text(string(said), most)
		if len(got) > most || got != Text(got, most) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q becomes %q", said, got)
		}
	})
	if got := Text("a\x1b[2Jé", 5); got != "a?[2J" {
		t.Errorf("%q", got)
	}
}

// The load is from 0 to 1, whatever a node tells.
func TestLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<62)
		r := Report{Storage: &StorageReport{Bytes: n.Draw(t, "bytes"), Size: n.Draw(t, "size")}}
		if l := r.Load(); !(l >= 0 && l <= 1) {
			t.Errorf("%v", l)
		}
	})
	if l := (&Report{Compute: &ComputeReport{Load: 0.25}}).Load(); l != 0.25 {
		t.Errorf("compute: %v", l)
	}
	if l := (&Report{Cache: &CacheReport{Bytes: 4, Size: 4}}).Load(); l != 0 {
		t.Errorf("cache: %v", l)
	}
}

func drawPair(t *rapid.T) (p Pair) {
	p.Destination[0], p.Destination[19] = rapid.Byte().Draw(t, "to"), 1
	p.Source[5] = rapid.Byte().Draw(t, "from")
	return p
}

// Pairs, and queries, are read as they were written.
func TestQuery(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := CustodyQuery{After: drawPair(t), Limit: rapid.IntRange(1, MaxRows).Draw(t, "limit")}
		if rapid.Bool().Draw(t, "for") {
			q.For = drawPair(t).Destination
		}
		got, err := parseQuery(q.values())
		if err != nil || got != q {
			t.Errorf("%+v becomes %+v, %v", q, got, err)
		}
	})
	for _, wrong := range []string{"", "/", "x/y", strings.Repeat("a", 40), strings.Repeat("a", 40) + "/" + strings.Repeat("g", 40)} {
		if _, err := ParsePair(wrong); err == nil {
			t.Errorf("%q is a pair", wrong)
		}
	}
}

// An answer that has more than was asked for, or is not in order, is not believed.
func TestPage(t *testing.T) {
	a, b := Pair{Destination: frame.GUID{1}, Source: frame.GUID{1}}, Pair{Destination: frame.GUID{1}, Source: frame.GUID{2}}
	row := func(p Pair) Custody { return Custody{Pair: p, Chunks: 1} }
	q := CustodyQuery{Limit: 2}
	for what, c := range map[string]struct {
		q    CustodyQuery
		page CustodyPage
	}{
		"too many":        {CustodyQuery{Limit: 1}, CustodyPage{Rows: []Custody{row(a), row(b)}}},
		"out of order":    {q, CustodyPage{Rows: []Custody{row(b), row(a)}}},
		"twice":           {q, CustodyPage{Rows: []Custody{row(a), row(a)}}},
		"known":           {CustodyQuery{Limit: 2, After: a}, CustodyPage{Rows: []Custody{row(a)}}},
		"for another":     {CustodyQuery{Limit: 2, For: frame.GUID{9}}, CustodyPage{Rows: []Custody{row(a)}}},
		"nothing":         {q, CustodyPage{Rows: []Custody{{Pair: a}}}},
		"after all years": {q, CustodyPage{Rows: []Custody{{Pair: a, Chunks: 1, Deadline: time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -60*60))}}}},
		"before them":     {q, CustodyPage{Rows: []Custody{{Pair: a, Chunks: 1, Oldest: time.Date(1, 1, 1, 0, 0, 0, 0, time.FixedZone("", 60*60))}}}},
		"more of nothing": {q, CustodyPage{More: true}},
	} {
		if c.page.Check(c.q) == nil {
			t.Errorf("%s: believed", what)
		}
	}
	if err := (&CustodyPage{Rows: []Custody{row(a), row(b)}, More: true}).Check(q); err != nil {
		t.Error(err)
	}
}

// A controller and a node speak to each other: the node proves its name, and lists what it keeps.
func TestSpeak(t *testing.T) {
	key, name := owner(1)
	pair := Pair{Destination: frame.GUID{1}, Source: frame.GUID{2}}
	server := NewServer(Options{
		Log: slog.New(slog.DiscardHandler), Key: key, Report: func() Report { return Report{Storage: &StorageReport{Size: 5}} },
		Custody: func(q CustodyQuery) CustodyPage { return CustodyPage{Rows: []Custody{{Pair: pair, Chunks: q.Limit}}} },
	})
	web := httptest.NewServer(server)
	defer func() { server.Close(); web.CloseClientConnections(); web.Close() }()
	c, err := NewClient(web.URL, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := c.Prove(t.Context()); err != nil || got != name {
		t.Errorf("proven: %v, %v", got, err)
	}
	if p, err := c.Custody(t.Context(), CustodyQuery{Limit: 7}); err != nil || len(p.Rows) != 1 || p.Rows[0].Chunks != 7 {
		t.Errorf("custody: %+v, %v", p, err)
	}
	if err := c.Call(t.Context(), http.MethodPost, "/v1/proof", Challenge{Nonce: []byte("short")}, nil); control.CodeOf(err) != control.CodeBadRequest {
		t.Errorf("a short challenge: %v", err)
	}
	if err := c.Call(t.Context(), http.MethodGet, "/v1/custody?limit=0", nil, nil); control.CodeOf(err) != control.CodeBadRequest {
		t.Errorf("a wrong query: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = c.Watch(ctx, control.Silence, func(e control.Event[control.Nothing, Report]) {
		if len(e.Live) != 1 || e.Live[0].Name != name || e.Live[0].Check() != nil {
			t.Errorf("told: %+v", e.Live)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A proof holds for its challenge alone, and shows the name of who has the key.
func TestProof(t *testing.T) {
	key, name := owner(1)
	c, other := NewChallenge(), NewChallenge()
	p := c.Prove(key)
	if got, err := c.Verify(p); err != nil || got != name {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := other.Verify(p); !errors.Is(err, record.ErrSignature) {
		t.Errorf("for another challenge: %v", err)
	}
	mallory, _ := owner(2)
	p.Key = mallory.Public().(ed25519.PublicKey)
	if _, err := c.Verify(p); !errors.Is(err, record.ErrSignature) {
		t.Errorf("with another key: %v", err)
	}
	if _, err := c.Verify(Proof{}); !errors.Is(err, record.ErrSignature) {
		t.Errorf("nothing: %v", err)
	}
}
