package control

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestRedirectsAreNotFollowed checks that an agent cannot redirect its controller to another
// server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var asked atomic.Int32
	victim := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte("{}"))
	}))
	defer victim.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, victim.URL+"/secret", status)
		}))
		c, err := NewClient[int, int](agent.URL, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Status(t.Context()); err == nil {
			t.Errorf("%d: the answer of somebody else counts", status)
		}
		if _, err := c.Drain(t.Context(), true); err == nil {
			t.Errorf("%d: the answer of somebody else counts", status)
		}
		if err := c.Watch(context.WithoutCancel(t.Context()), Silence, func(Event[int, int]) {}); err == nil {
			t.Errorf("%d: events of somebody else count", status)
		}
		c.Close()
		agent.Close()
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("somebody else was asked %d times", n)
	}
}
