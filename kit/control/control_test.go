package control

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A connection whose request was too large is read on for half a second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func TestProblem(t *testing.T) {
	p := &Problem{Title: "wrong request", Code: CodeBadRequest, Field: "role", Detail: "want client or server"}
	if got, want := p.Error(), "wrong request: role: want client or server (bad-request)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if CodeOf(fmt.Errorf("prepare: %w", p)) != CodeBadRequest || CodeOf(nil) != "" {
		t.Error("CodeOf")
	}
}

func TestClientAddress(t *testing.T) {
	for _, s := range []string{"", "agent:7443", "ftp://x", "https://", "http://%zz"} {
		if _, err := NewClient[int, int](s, nil, nil); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

// TestLongProblem checks that long texts of a refusal, which are written to logs and events, are
// cut.
func TestLongProblem(t *testing.T) {
	long := strings.Repeat("é", 30_000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(Problem{Title: long[:20_000], Detail: long[:20_000], Field: "f", Code: CodeInternal})
	}))
	defer s.Close()
	res, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if p := readProblem(res); len(p.Error()) > 3*maxText || !utf8.ValidString(p.Error()) || p.Field != "f" || p.Status != http.StatusConflict {
		t.Errorf("%d bytes: %v", len(p.Error()), p)
	}
}
