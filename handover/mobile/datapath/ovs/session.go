package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sluice-net/sluice/openflow"
)

const (
	// greeting bounds the opening of a session, writing one write.
	greeting = 5 * time.Second
	writing  = 2 * time.Second
	// firstRetry and lastRetry are the pauses between attempts to connect.
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// errLost is why a request fails whose session ended.
var errLost = errors.New("the connection to the switch was lost")

// session is a conversation with the bridge on its management socket.
type session struct {
	conn     net.Conn
	packetIn func(*session, *openflow.PacketIn)
	log      *slog.Logger
	done     chan struct{} // closed when the reader has ended

	mu      sync.Mutex
	xid     uint32
	waiting map[uint32]*request // by every xid of the request
}

// request waits for a barrier's reply, and collects what comes before it.
type request struct {
	barrier uint32
	finish  chan struct{}
	err     error
	replies []openflow.Message
}

// connect opens a session and starts its reader, which ends with the connection.
func connect(ctx context.Context, path string, log *slog.Logger, packetIn func(*session, *openflow.PacketIn)) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, packetIn: packetIn, log: log, done: make(chan struct{}), waiting: map[uint32]*request{}}
	r := openflow.NewReader(conn)
	if err := s.greet(r); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("greeting the switch: %w", err)
	}
	go s.read(r)
	// Without a length the switch sends a session of this kind no packets.
	config := &openflow.SetConfig{Config: openflow.Config{MissLen: openflow.MaxLenNoBuffer}}
	if _, err := s.request(ctx, config); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) greet(r *openflow.Reader) error {
	if err := s.conn.SetDeadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	b, err := openflow.NewHello().AppendTo(nil, 0)
	if err != nil {
		return err
	}
	if _, err := s.conn.Write(b); err != nil {
		return err
	}
	m, err := r.Next()
	if err != nil {
		return err
	}
	var h openflow.Hello
	if err := h.Decode(m); err != nil {
		return err
	}
	if !h.Speaks(openflow.Version) {
		return fmt.Errorf("it does not speak OpenFlow 1.3: %v", &h)
	}
	return s.conn.SetDeadline(time.Time{})
}

// close ends the session and waits for its reader.
func (s *session) close() {
	_ = s.conn.Close()
	<-s.done
}

// read handles what the switch sends.
func (s *session) read(r *openflow.Reader) {
	defer close(s.done)
	err := s.readAll(r)
	_ = s.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for xid, q := range s.waiting {
		if xid == q.barrier {
			q.err = errors.Join(errLost, err)
			close(q.finish)
		}
	}
	s.waiting = nil
}

func (s *session) readAll(r *openflow.Reader) error {
	for {
		raw, err := r.Next()
		if err != nil {
			return err
		}
		h, m, err := openflow.Decode(raw)
		if err != nil {
			s.log.Warn("message of the switch", "error", err)
			continue
		}
		switch m := m.(type) {
		case *openflow.EchoRequest:
			if err := s.send(h.XID, &openflow.EchoReply{Data: m.Data}); err != nil {
				return err
			}
		case *openflow.PacketIn:
			s.packetIn(s, m)
		default:
			s.reply(h.XID, raw)
		}
	}
}

// reply gives a message to the request it belongs to. Replies are decoded
// again from a copy: they outlive the reader's buffer.
func (s *session) reply(xid uint32, raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.waiting[xid]
	if q == nil {
		return
	}
	_, m, err := openflow.Decode(append([]byte(nil), raw...))
	switch m := m.(type) {
	case *openflow.Error:
		q.err = errors.Join(q.err, m)
	case *openflow.BarrierReply:
		close(q.finish)
		q.barrier = 0
	default:
		if err == nil {
			q.replies = append(q.replies, m)
		}
	}
}

// send writes one message.
func (s *session) send(xid uint32, m openflow.Message) error {
	b, err := m.AppendTo(nil, xid)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(b)
}

// write wants mu held.
func (s *session) write(b []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writing)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}

// request sends messages and a barrier, and waits until the switch has handled
// them all. What the switch refuses is the error.
func (s *session) request(ctx context.Context, msgs ...openflow.Message) ([]openflow.Message, error) {
	q := &request{finish: make(chan struct{})}
	xids, err := s.start(q, msgs)
	defer s.forget(xids)
	if err != nil {
		return nil, err
	}
	select {
	case <-q.finish:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the switch: %w", ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return q.replies, q.err
}

func (s *session) start(q *request, msgs []openflow.Message) (xids []uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		return nil, errLost
	}
	var b []byte
	for _, m := range append(msgs, &openflow.BarrierRequest{}) {
		s.xid++
		if b, err = m.AppendTo(b, s.xid); err != nil {
			return xids, err
		}
		s.waiting[s.xid] = q
		xids = append(xids, s.xid)
	}
	q.barrier = s.xid
	return xids, s.write(b)
}

func (s *session) forget(xids []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range xids {
		delete(s.waiting, x)
	}
}

// bundle makes changes together or not at all. The switch checks each when it
// is added; only when all were taken is the bundle committed.
func (s *session) bundle(ctx context.Context, msgs []openflow.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	const flags = openflow.BundleAtomic | openflow.BundleOrdered
	s.mu.Lock()
	s.xid++
	id := s.xid
	s.mu.Unlock()
	adding := []openflow.Message{&openflow.BundleControl{Bundle: id, Op: openflow.BundleOpenRequest, Flags: flags}}
	for _, m := range msgs {
		adding = append(adding, &openflow.BundleAdd{Bundle: id, Flags: flags, Message: m})
	}
	if _, err := s.request(ctx, adding...); err != nil {
		discard := &openflow.BundleControl{Bundle: id, Op: openflow.BundleDiscardRequest, Flags: flags}
		_, _ = s.request(ctx, discard) // the first error is what matters
		return fmt.Errorf("preparing the change: %w", err)
	}
	commit := &openflow.BundleControl{Bundle: id, Op: openflow.BundleCommitRequest, Flags: flags}
	if _, err := s.request(ctx, commit); err != nil {
		return fmt.Errorf("committing the change: %w", err)
	}
	return nil
}
