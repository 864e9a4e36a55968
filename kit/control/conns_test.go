package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestCloseEndsConnectionsNobodyWaitsFor checks that Close closes a connection that is established
// only after its request has been given up, and one that is made after Close.
func TestCloseEndsConnectionsNobodyWaitsFor(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	made, proceed := make(chan net.Conn, 2), make(chan struct{})
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	c, err := NewClient[int, int](s.URL, nil, func(_ context.Context, network, addr string) (net.Conn, error) {
		giveUp()
		<-proceed
		nc, err := net.Dial(network, addr)
		if err == nil {
			made <- nc
		}
		return nc, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("a request whose connection does not come: %v", err)
	}
	c.Close()
	close(proceed)
	late := <-made
	_ = late.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the late connection: %v, want it closed", err)
	}
	if _, err := c.Status(t.Context()); err == nil {
		t.Error("a request after the end was answered")
	}
}
