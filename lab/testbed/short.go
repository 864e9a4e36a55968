package testbed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// ShortOptions describes many short connections of one client to a [WebServer]. Each fetches one
// small file and ends.
type ShortOptions struct {
	Client Inside
	Server netip.AddrPort
	File   string // path at the server, without a leading slash
	Want   []byte // content of the file
	Count  int
	AtOnce int
	// ClientCloses makes the client close the connection after the answer and continue with its
	// next one; a goroutine waits until the server has closed it too. Otherwise the server closes
	// first.
	ClientCloses bool
}

// ShortConnection holds the result of one connection.
type ShortConnection struct {
	Local   netip.AddrPort // address of the client's end; invalid if it never connected
	Began   time.Time
	Took    time.Duration // from the first SYN until the client has closed, or has seen the server close
	Failure Failure
	Err     error     // error of the connection, or nil
	Failed  time.Time // time of the error
}

// Failure is the kind of a connection's failure.
type Failure string

// These are the kinds of failures.
const (
	NoFailure      Failure = ""
	ResetOnConnect Failure = "reset on connect"
	ResetOnRead    Failure = "reset on read"
	TimedOut       Failure = "timed out"
	WrongBytes     Failure = "wrong bytes"
	OtherFailure   Failure = "other"
)

// Failures returns all kinds in the order of tables.
func Failures() []Failure {
	return []Failure{ResetOnConnect, ResetOnRead, TimedOut, WrongBytes, OtherFailure}
}

// shortLimit is how long a connection may take before it counts as hung.
const shortLimit = 20 * time.Second

// errWrong means that an answer does not belong to the request.
var errWrong = errors.New("wrong answer")

// Short makes the connections and returns the result of each, in the order in which the client's
// workers took them up. A connection that fails is a result; an error means that connections could
// not be made at all.
func Short(ctx context.Context, o ShortOptions) ([]ShortConnection, error) {
	all := make([]ShortConnection, o.Count)
	var next atomic.Int64
	group, within := errgroup.WithContext(ctx)
	for range min(o.AtOnce, o.Count) {
		group.Go(func() error {
			return o.Client.Do(func() error {
				for i := int(next.Add(1)) - 1; i < o.Count; i = int(next.Add(1)) - 1 {
					if within.Err() != nil {
						return context.Cause(within)
					}
					o.connect(within, i, &all[i], group)
				}
				return nil
			})
		})
	}
	err := group.Wait()
	if err == nil {
		err = context.Cause(ctx) // Connections that the end of ctx has cut off have not failed.
	}
	if err != nil {
		return nil, fmt.Errorf("short connections to %v: %w", o.Server, err)
	}
	return all, nil
}

// connect makes connection number i. The group waits until both ends have closed it.
func (o ShortOptions) connect(ctx context.Context, i int, c *ShortConnection, group *errgroup.Group) {
	c.Began = time.Now()
	defer func() { c.Took = time.Since(c.Began) }()
	d := net.Dialer{Deadline: c.Began.Add(shortLimit)}
	conn, err := d.DialContext(ctx, "tcp", o.Server.String())
	if err != nil {
		c.fail(ResetOnConnect, fmt.Errorf("connect: %w", err))
		return
	}
	tcp := conn.(*net.TCPConn)
	release := context.AfterFunc(ctx, func() { tcp.Close() })
	closeAll := func() { release(); tcp.Close() }
	c.Local = tcp.LocalAddr().(*net.TCPAddr).AddrPort()
	r := bufio.NewReader(tcp)
	if err := errors.Join(tcp.SetDeadline(d.Deadline), o.exchange(tcp, r, c.Local, i)); err != nil {
		c.fail(ResetOnRead, err)
		closeAll()
		return
	}
	if !o.ClientCloses {
		c.fail(ResetOnRead, awaitEnd(r))
		closeAll()
		return
	}
	err = tcp.CloseWrite()
	group.Go(func() error {
		defer closeAll()
		c.fail(ResetOnRead, errors.Join(err, awaitEnd(r)))
		return nil
	})
}

// fail records an error, if any. reset is the kind of failure that a reset means at that point.
func (c *ShortConnection) fail(reset Failure, err error) {
	if err != nil {
		c.Failure, c.Err, c.Failed = FailureOf(err, reset), err, time.Now()
	}
}

// exchange requests the file and checks the answer.
func (o ShortOptions) exchange(w io.Writer, r *bufio.Reader, local netip.AddrPort, i int) error {
	ends := "close"
	if o.ClientCloses {
		ends = "keep-alive"
	}
	asked := fmt.Sprintf("number=%d", i)
	if _, err := fmt.Fprintf(w, "GET /%s?%s HTTP/1.1\r\nHost: server\r\nConnection: %s\r\n\r\n", o.File, asked, ends); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, int64(len(o.Want))+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case answer.StatusCode != http.StatusOK, !bytes.Equal(body, o.Want):
		return fmt.Errorf("%w: %s with %d bytes, want %d", errWrong, answer.Status, len(body), len(o.Want))
	case answer.Header.Get(askedHeader) != asked, answer.Header.Get(seenFromHeader) != local.String():
		return fmt.Errorf("%w: for %q from %s, want %q from %v", errWrong, answer.Header.Get(askedHeader), answer.Header.Get(seenFromHeader), asked, local)
	}
	return nil
}

// awaitEnd waits until the server has closed the connection in order.
func awaitEnd(r *bufio.Reader) error {
	switch _, err := r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: more bytes after it", errWrong)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("see the connection end: %w", err)
	}
	return nil
}

// FailureOf returns the kind of failure of a connection's error. reset is the kind that a reset
// means at that point.
func FailureOf(err error, reset Failure) Failure {
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPIPE):
		return reset
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	case errors.Is(err, errWrong), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return WrongBytes
	}
	return OtherFailure
}
