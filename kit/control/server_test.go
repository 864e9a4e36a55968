package control

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

type question struct {
	N int `json:"n"`
}

// serve runs a server that halves even numbers, and returns it with a client.
func serve(t *testing.T) (*Server[int, string], *Client[int, string]) {
	t.Helper()
	s := NewServer[int](Options[string]{
		Log: slog.New(slog.DiscardHandler), MaxSessions: 7, Sessions: func() int { return 2 },
		Status: func() Status { return Status{Version: "v1"} }, Live: func() []string { return []string{"one", "two"} },
	})
	Handle(s, "POST /v1/half", func(_ *http.Request, in question) (question, error) {
		if in.N%2 != 0 {
			return question{}, BadRequest("n", "%d is odd", in.N)
		}
		return question{in.N / 2}, nil
	})
	Handle(s, "DELETE /v1/half", func(*http.Request, Nothing) (Nothing, error) { return Nothing{}, errors.New("broken") })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l, nil) }()
	c, err := NewClient[int, string]("http://"+l.Addr().String(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		s.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, c
}

// TestHandle checks that a request is answered, or refused with a code and the wrong field.
func TestHandle(t *testing.T) {
	_, c := serve(t)
	var out question
	if err := c.Call(t.Context(), http.MethodPost, "/v1/half", question{8}, &out); err != nil || out.N != 4 {
		t.Errorf("%+v, %v", out, err)
	}
	long := strings.Repeat("x", maxBody)
	for _, x := range []struct {
		method, path string
		in           any
		code         Code
		status       int
		field        string
	}{
		{http.MethodPost, "/v1/half", question{7}, CodeBadRequest, 400, "n"},
		{http.MethodPost, "/v1/half", map[string]int{"m": 1}, CodeBadRequest, 400, "body"},
		{http.MethodPost, "/v1/half", map[string]string{"n": long}, CodeBadRequest, 400, "body"},
		{http.MethodDelete, "/v1/half", nil, CodeInternal, 500, ""},
		{http.MethodGet, "/v1/third", nil, CodeNotFound, 404, ""},
	} {
		err := c.Call(t.Context(), x.method, x.path, x.in, nil)
		if p, is := errors.AsType[*Problem](err); !is || p.Code != x.code || p.Status != x.status || p.Field != x.field {
			t.Errorf("%s %s: %v", x.method, x.path, err)
		}
	}
}

// TestStatus checks that the status has the values of the agent and of its server, and that
// draining is kept.
func TestStatus(t *testing.T) {
	s, c := serve(t)
	for i, on := range []bool{true, false} {
		st, err := c.Drain(t.Context(), on)
		if err != nil || st.DrainRequests != uint64(i+1) || st.Draining != on || s.Draining() != on || st.Version != "v1" || st.Sessions != 2 || st.MaxSessions != 7 || st.Instance == "" || st.Started.IsZero() {
			t.Errorf("%+v, %v", st, err)
		}
	}
}

// TestEvents checks that a stream starts with the latest held records and continues with new ones,
// and that each record has a number.
func TestEvents(t *testing.T) {
	s, c := serve(t)
	for i := range keepRecords + 1 {
		s.Record(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []int
	err := c.Watch(ctx, Silence, func(e Event[int, string]) {
		if got == nil {
			if len(e.Live) != 2 || e.Seq != keepRecords+1 || e.Status.Sessions != 2 || e.Instance != s.Now().Instance {
				t.Errorf("the first event: %d records until %d, %q", len(e.Ended), e.Seq, e.Live)
			}
			s.Record(keepRecords + 1)
		}
		if got = append(got, e.Ended...); len(e.Ended) > 0 && e.Seq != uint64(e.Ended[len(e.Ended)-1])+1 {
			t.Errorf("record %d has the number %d", e.Ended[len(e.Ended)-1], e.Seq)
		}
		if slices.Contains(got, keepRecords+1) {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || len(got) != keepRecords-keepRecords/4+2 || !slices.IsSorted(got) {
		t.Errorf("%d records, sorted %v: %v", len(got), slices.IsSorted(got), err)
	}
}
