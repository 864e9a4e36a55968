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
	// maxStreams limits the open streams of events.
	maxStreams = 256
	// maxStreamsEach limits the open streams of one identity.
	maxStreamsEach = maxStreams / 2
	// streamBuffer is how many bytes the system buffers for a consumer that does not read.
	// Buffered bytes delay the detection of such a consumer.
	streamBuffer = 64 << 10
)

// errReplaced means that a stream was ended in favour of a newer one. Its consumer may open it
// again.
var errReplaced = errors.New("a newer stream of events has taken its place")

// openStreams holds the open streams of events. While no event is written to a stream, it is unknown
// whether its consumer is still there. Therefore a new stream of an identity that has reached its
// limit ends the identity's oldest one.
type openStreams struct {
	mu   sync.Mutex
	open []*openStream // the oldest first
}

type openStream struct {
	identity string
	end      context.CancelCauseFunc
}

// add adds a stream of an identity. end ends the stream. add may end an older stream to make room, and
// returns nil if there is no room.
func (s *openStreams) add(identity string, end context.CancelCauseFunc) *openStream {
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
		s.endOldest(identity)
	case len(s.open) >= maxStreams && count[most] > 1:
		s.endOldest(most)
	case len(s.open) >= maxStreams:
		return nil
	}
	o := &openStream{identity, end}
	s.open = append(s.open, o)
	return o
}

// endOldest ends the oldest stream of an identity. The mutex is held.
func (s *openStreams) endOldest(identity string) {
	i := slices.IndexFunc(s.open, func(o *openStream) bool { return o.identity == identity })
	s.open[i].end(errReplaced)
	s.open = slices.Delete(s.open, i, i+1)
}

// remove removes a stream that has ended.
func (s *openStreams) remove(o *openStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.open, o); i >= 0 {
		s.open = slices.Delete(s.open, i, i+1)
	}
}

// len returns how many streams are open.
func (s *openStreams) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// streamIdentity returns the identity for the limits of streams: the sender of the request or, if the
// request has no credentials, the address from which it came.
func streamIdentity(ctx context.Context) string {
	if name := Identity(ctx); name != "" {
		return name
	}
	return "address:" + Remote(ctx).String()
}

type connKey struct{}

// withConn adds a connection to the context of the requests on it.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// limitWriteBuffer limits the system's write buffer of the request's connection.
func limitWriteBuffer(r *http.Request) error {
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
