package control

import (
	"fmt"
	"testing"

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
