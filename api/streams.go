package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
)

const (
	// maxStreams bounds the streams of events that are open at once.
	maxStreams = 256
	// maxStreamsEach bounds those of one identity.
	maxStreamsEach = maxStreams / 2
	// streamBuffer is how many bytes the system keeps for a consumer that does not read. What
	// is kept keeps it from being noticed.
	streamBuffer = 64 << 10
)

// errGaveWay says that a stream was ended for a newer one. Its consumer may open it again.
var errGaveWay = errors.New("a newer stream of events has taken its place")

// streams are the open streams of events. Nobody can see whether a consumer to which nothing
// is to be written still reads, so where an identity has as many streams as it may, its oldest
// one gives way to a new one.
type streams struct {
	mu   sync.Mutex
	open []*openStream // the oldest first
}

type openStream struct {
	identity string
	end      context.CancelCauseFunc
}

// add opens a stream of an identity, which end ends. It returns nil where there is no room.
func (s *streams) add(identity string, end context.CancelCauseFunc) *openStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := map[string]int{}
	most := identity
	for _, o := range s.open {
		if count[o.identity]++; count[o.identity] > count[most] {
			most = o.identity
		}
	}
	switch {
	case count[identity] >= maxStreamsEach:
		s.giveWay(identity)
	case len(s.open) >= maxStreams && count[most] > 1:
		s.giveWay(most)
	case len(s.open) >= maxStreams:
		return nil
	}
	o := &openStream{identity, end}
	s.open = append(s.open, o)
	return o
}

// giveWay ends the oldest stream of an identity; the mutex is held.
func (s *streams) giveWay(identity string) {
	i := slices.IndexFunc(s.open, func(o *openStream) bool { return o.identity == identity })
	s.open[i].end(errGaveWay)
	s.open = slices.Delete(s.open, i, i+1)
}

// remove takes note of the end of a stream.
func (s *streams) remove(o *openStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, o); i >= 0 {
		s.open = slices.Delete(s.open, i, i+1)
	}
}

// len returns how many streams are open.
func (s *streams) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// follower returns for whom a stream of events counts: the sender of the request or, where
// requests are let in without credentials, its address.
func follower(ctx context.Context) string {
	if name := Identity(ctx); name != "" {
		return name
	}
	return "address:" + Remote(ctx).String()
}

type connKey struct{}

// withConn notes the connection on which requests come.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// boundBuffer bounds what the system keeps for the consumer at the other end of the
// connection on which a request came.
func boundBuffer(r *http.Request) error {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	for conn != nil {
		switch c := conn.(type) {
		case interface{ SetWriteBuffer(int) error }:
			return c.SetWriteBuffer(streamBuffer)
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
	return nil
}
