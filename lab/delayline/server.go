package delayline

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Server carries the links of a Config.
type Server struct {
	listener net.Listener
	loops    []*loop
	taps     []*tap
	links    map[string]*servedLink

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

// servedLink is a link with its two directions.
type servedLink struct {
	ends  [2]*tap
	pipes [2]*pipe // from A to B, and from B to A
	loops [2]*loop
}

// NewServer makes the TAP devices and the control socket. Close removes them.
func NewServer(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("delay line: %w", err)
	}
	s := &Server{links: map[string]*servedLink{}, conns: map[net.Conn]struct{}{}}
	if err := s.open(c); err != nil {
		s.Close()
		return nil, fmt.Errorf("delay line: %w", err)
	}
	return s, nil
}

func (s *Server) open(c Config) error {
	for range c.threads() {
		l, err := newLoop()
		if err != nil {
			return err
		}
		s.loops = append(s.loops, l)
	}
	seed := c.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i, link := range c.Links {
		if err := s.addLink(link, i, seed); err != nil {
			return fmt.Errorf("link %s: %w", link.Name, err)
		}
	}
	if err := os.Remove(c.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var err error
	s.listener, err = net.Listen("unix", c.Socket)
	if err != nil {
		return err
	}
	return os.Chmod(c.Socket, 0o600)
}

func (s *Server) addLink(link Link, index int, seed uint64) error {
	v := &servedLink{}
	for i, end := range []End{link.A, link.B} {
		t, err := openTAP(end)
		if err != nil {
			return err
		}
		s.taps = append(s.taps, t)
		v.ends[i] = t
	}
	params := []Params{link.AtoB, link.BtoA}
	offload := []bool{link.B.Offload, link.A.Offload}
	for d := range 2 {
		v.pipes[d] = &pipe{
			line: newLine(params[d], offload[d], seed+uint64(2*index+d)),
			from: v.ends[d], to: v.ends[1-d],
		}
		v.loops[d] = s.loops[index%len(s.loops)]
		if err := v.loops[d].add(v.pipes[d]); err != nil {
			return err
		}
	}
	s.links[link.Name] = v
	return nil
}

// Run carries traffic and answers control requests until ctx ends or a TAP is removed. It closes
// the server.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range s.loops {
		group.Go(func() error { return l.run(ctx) })
	}
	group.Go(func() error { return s.serve(ctx, group) })
	group.Go(func() error {
		<-ctx.Done()
		s.closeConns()
		return nil
	})
	return group.Wait()
}

func (s *Server) serve(ctx context.Context, group *errgroup.Group) error {
	for {
		conn, err := s.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
		s.mu.Lock()
		s.conns[conn] = struct{}{}
		s.mu.Unlock()
		group.Go(func() error {
			defer s.forget(conn)
			s.serveConn(conn)
			return nil
		})
	}
}

func (s *Server) forget(conn net.Conn) {
	_ = conn.Close()
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
}

func (s *Server) closeConns() {
	_ = s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// Close removes the TAP devices and the socket.
func (s *Server) Close() {
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for _, t := range s.taps {
		t.close()
	}
	for _, l := range s.loops {
		l.close()
	}
	s.taps, s.loops = nil, nil
}

// serveConn reads requests, one JSON object a line, and answers each.
func (s *Server) serveConn(conn net.Conn) {
	in := bufio.NewScanner(conn)
	in.Buffer(nil, 64<<10)
	out := json.NewEncoder(conn)
	for in.Scan() {
		var req request
		reply := reply{}
		if err := json.Unmarshal(in.Bytes(), &req); err != nil {
			reply.Error = err.Error()
		} else if reply.Links, err = s.answer(req); err != nil {
			reply.Error = err.Error()
		}
		_ = conn.SetWriteDeadline(time.Now().Add(controlTimeout))
		if err := out.Encode(reply); err != nil {
			return
		}
	}
}

func (s *Server) answer(req request) (map[string]LinkState, error) {
	v := s.links[req.Link]
	if v == nil && req.Op != opStats {
		return nil, fmt.Errorf("no link %q", req.Link)
	}
	switch req.Op {
	case opStats:
		return s.state(), nil
	case opSet:
		return nil, v.set(req)
	case opCarrier:
		return nil, v.setCarrier(req.Up)
	}
	return nil, fmt.Errorf("unknown operation %q", req.Op)
}

// set changes the parameters of one or both directions, or of neither.
func (v *servedLink) set(req request) error {
	asked := [2]*Params{req.AtoB, req.BtoA}
	for _, p := range asked {
		if p == nil {
			continue
		}
		if err := p.Validate(); err != nil {
			return err
		}
	}
	for d, p := range asked {
		if p != nil {
			v.loops[d].change(v.pipes[d], func(q *pipe, now int64) { q.line.set(*p, now) })
		}
	}
	return nil
}

func (v *servedLink) setCarrier(up bool) error {
	for d := range 2 {
		v.loops[d].change(v.pipes[d], func(q *pipe, now int64) {
			q.down = !up
			if q.down {
				q.line.cutCable(now)
			}
		})
	}
	return errors.Join(v.ends[0].setCarrier(up), v.ends[1].setCarrier(up))
}

// change applies f to a pipe between two rounds of the loop's work.
func (l *loop) change(p *pipe, f func(p *pipe, now int64)) {
	l.mu.Lock()
	f(p, monotonic())
	for i := range l.pipes {
		l.next[i] = l.pipes[i].line.next()
	}
	l.updatePause()
	l.mu.Unlock()
	l.wakeUp()
}

func (s *Server) state() map[string]LinkState {
	all := map[string]LinkState{}
	for name, v := range s.links {
		var st LinkState
		for d := range 2 {
			l := v.loops[d]
			l.mu.Lock()
			dir := DirectionState{Params: v.pipes[d].line.params, Stats: v.pipes[d].line.snapshot(monotonic())}
			st.Up = !v.pipes[d].down
			l.mu.Unlock()
			if d == 0 {
				st.AtoB = dir
			} else {
				st.BtoA = dir
			}
		}
		all[name] = st
	}
	return all
}
