package ingress

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/clientaddr"
	"github.com/sluice-net/sluice/internal/tasks"
)

// The gateway does not implement all of SRT. It answers the first part of the handshake, checks the
// stream ID, and then passes a client's datagrams to an ffmpeg process of this client, whose library
// implements the rest of the protocol. So a client without the right stream ID reaches no such process,
// and a client that exploits an error of the library affects only its own process.

// Layout of a packet of the handshake (draft-sharabayko-srt, sections 3.2 and 3.2.1), and the
// values of its fields.
const (
	srtHandshake     = 0x80000000 // the first four bytes
	srtDestination   = 12
	srtVersion       = 16
	srtEncryption    = 20
	srtExtensionFlag = 22
	srtType          = 36
	srtSocket        = 40
	srtCookie        = 44
	srtExtensions    = 64

	srtInduction  = 1
	srtConclusion = 0xffffffff
	srtMagic      = 0x4a17
	srtStreamID   = 5 // type of an extension

	// Types of a handshake packet that mean a rejection: srtRejected plus the number of the reason.
	srtRejected  = 1000
	srtNoRoom    = 1005
	srtBadSecret = 1010
	srtUnsecure  = 1011
	srtForbidden = 1403
	srtConflict  = 1407
	srtLast      = 2000
)

const (
	// srtTimeout bounds the time from a client's request until its process has accepted it.
	srtTimeout = 5 * time.Second
	// srtRetry is the time between two handshake packets to a process that does not answer yet.
	srtRetry = 50 * time.Millisecond
	// maxSRTClients bounds the clients of a source that have a process.
	maxSRTClients = 8
	// cookieTime is the least time for which a cookie is valid.
	cookieTime = 30 * time.Second
)

var (
	errUnsecure  = errors.New("its passphrase is wrong, or only one side has one")
	errManySRT   = fmt.Errorf("%d others are connecting", maxSRTClients)
	errSRTSilent = fmt.Errorf("its connection was not established within %v", srtTimeout)
)

// srtServer waits for producers by SRT.
type srtServer struct {
	r      *receiver
	conn   *net.UDPConn
	secret [32]byte // key with which cookies are computed

	mu      sync.Mutex
	clients map[netip.AddrPort]*srtClient
}

// srtClient is a client whose datagrams are passed to an ffmpeg process of its own.
type srtClient struct {
	s       *srtServer
	from    netip.AddrPort
	process *net.UDPConn // connected to the process
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	request []byte  // the client's last request, until the process has accepted it
	cookie  [4]byte // cookie that the process has given
}

// openSRT starts to wait for producers by SRT.
func openSRT(r *receiver) error {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(r.place.at))
	if err != nil {
		return err
	}
	_ = conn.SetReadBuffer(2 << 20) // up to the kernel's limit
	s := &srtServer{r: r, conn: conn, clients: map[netip.AddrPort]*srtClient{}}
	_, _ = rand.Read(s.secret[:]) // never fails
	context.AfterFunc(r.tasks.Context(), func() { _ = conn.Close() })
	r.tasks.Start(func(context.Context) { s.run() })
	return nil
}

// run reads datagrams until the connection is closed.
func (s *srtServer) run() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			s.handle(buf[:n], from, time.Now())
		}
	}
}

// handle processes a datagram of a client.
func (s *srtServer) handle(b []byte, from netip.AddrPort, now time.Time) {
	s.mu.Lock()
	c := s.clients[from]
	s.mu.Unlock()
	if !isHandshake(b) {
		if c != nil {
			_, _ = c.process.Write(b) // an error means that the process has ended
		}
		return
	}
	switch binary.BigEndian.Uint32(b[srtType:]) {
	case srtInduction:
		s.reply(s.induction(b, from, now), from)
	case srtConclusion:
		if !hmac.Equal(b[srtCookie:srtCookie+4], s.cookie(from, now)) && !hmac.Equal(b[srtCookie:srtCookie+4], s.cookie(from, now.Add(-cookieTime))) {
			return
		}
		if c != nil { // the client repeats its request because it has got no answer yet
			c.repeat(b)
			return
		}
		if reason, err := s.admit(b, from, now); err != nil {
			s.reply(rejection(b, reason), from)
			s.r.refuse(from.Addr(), err)
		}
	}
}

func (s *srtServer) reply(b []byte, to netip.AddrPort) {
	_, _ = s.conn.WriteToUDPAddrPort(b, to) // a client that gets no answer asks again
}

func isHandshake(b []byte) bool {
	return len(b) >= srtExtensions && binary.BigEndian.Uint32(b) == srtHandshake
}

// cookie returns the cookie that a client has to return in its request. It proves that the client
// receives datagrams at the address from which it sends.
func (s *srtServer) cookie(from netip.AddrPort, now time.Time) []byte {
	h := hmac.New(sha256.New, s.secret[:])
	_, _ = fmt.Fprintf(h, "%v %d", from, now.Unix()/int64(cookieTime/time.Second))
	return h.Sum(nil)[:4]
}

// induction returns the answer to a client's first packet b, with the cookie.
func (s *srtServer) induction(b []byte, from netip.AddrPort, now time.Time) []byte {
	out := slices.Clone(b[:srtExtensions])
	copy(out[srtDestination:srtDestination+4], b[srtSocket:])
	binary.BigEndian.PutUint32(out[srtVersion:], 5)
	binary.BigEndian.PutUint16(out[srtEncryption:], 0)
	binary.BigEndian.PutUint16(out[srtExtensionFlag:], srtMagic)
	copy(out[srtCookie:], s.cookie(from, now))
	return out
}

// rejection returns the answer that refuses a client's request b.
func rejection(b []byte, reason uint32) []byte {
	out := slices.Clone(b[:srtExtensions])
	copy(out[srtDestination:srtDestination+4], b[srtSocket:])
	binary.BigEndian.PutUint16(out[srtExtensionFlag:], 0)
	binary.BigEndian.PutUint32(out[srtType:], reason)
	return out
}

// streamIDOf returns the stream ID of a client's request. Its bytes are reversed in each word
// (section 3.2.1.3).
func streamIDOf(b []byte) string {
	for b = b[srtExtensions:]; len(b) >= 4; {
		kind, n := binary.BigEndian.Uint16(b), 4*int(binary.BigEndian.Uint16(b[2:]))
		if b = b[4:]; n > len(b) {
			break
		}
		if kind == srtStreamID {
			var id strings.Builder
			for word := b[:n]; len(word) > 0; word = word[4:] {
				id.Write([]byte{word[3], word[2], word[1], word[0]})
			}
			return strings.TrimRight(id.String(), "\x00")
		}
		b = b[n:]
	}
	return ""
}

// admit starts a process for a client if its request has the right stream ID and nobody else
// publishes. The process checks the passphrase.
func (s *srtServer) admit(b []byte, from netip.AddrPort, now time.Time) (reason uint32, err error) {
	if err := s.r.checkKey(from.Addr(), streamIDOf(b)); err != nil {
		return srtForbidden, err
	}
	if err := s.r.vacant(now); err != nil {
		return srtConflict, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ofSource := 0
	for other := range maps.Keys(s.clients) {
		if clientaddr.Source(other.Addr()) == clientaddr.Source(from.Addr()) {
			ofSource++
		}
	}
	if len(s.clients) >= maxSRTClients || ofSource >= maxSRTClients/2 {
		return srtNoRoom, errManySRT
	}
	if !s.r.guard.allowAttempt(clientaddr.Source(from.Addr()), false, now) { // forgiven when its passphrase is right
		return srtForbidden, errTooManyWrong
	}
	c := &srtClient{s: s, from: from, request: slices.Clone(b)}
	port, err := freeUDPPort()
	if err == nil {
		c.process, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	}
	if err != nil {
		return srtNoRoom, err
	}
	if !s.r.tasks.Start(func(ctx context.Context) { c.run(ctx, port) }) {
		_ = c.process.Close()
		return srtNoRoom, errors.New("the channel is being removed")
	}
	s.clients[from] = c
	return 0, nil
}

// freeUDPPort returns a port of the loopback interface that no program uses now.
func freeUDPPort() (int, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port, nil
}

// repeat processes a client's repeated request. If the process has accepted the client, the
// process answers again.
func (c *srtClient) repeat(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.request != nil {
		c.request = append(c.request[:0], b...)
		return
	}
	c.send(b)
}

// send sends a request to the process, with the cookie that the process has given. c.mu is held.
func (c *srtClient) send(request []byte) {
	b := slices.Clone(request)
	copy(b[srtCookie:srtCookie+4], c.cookie[:])
	_, _ = c.process.Write(b) // if it is lost, it is sent again
}

// run runs the client's process until that or ctx ends.
func (c *srtClient) run(ctx context.Context, port int) {
	// The kernel kills ffmpeg when the thread that has started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, c.cancel = context.WithCancelCause(ctx)
	defer c.cancel(nil)
	defer func() {
		c.s.mu.Lock()
		delete(c.s.clients, c.from)
		c.s.mu.Unlock()
		_ = c.process.Close()
	}()
	in, out, err := os.Pipe()
	if err != nil {
		c.s.r.refuse(c.from.Addr(), err)
		return
	}
	stderr := &tail{source: c.s.r.ffmpeg.source.address}
	cmd := c.s.r.ffmpeg.command(ctx, stderr, srtArgs(port, c.s.r.place.options))
	cmd.Stdout = out
	err = cmd.Start()
	_ = out.Close()
	if err != nil {
		_ = in.Close()
		c.s.r.refuse(c.from.Addr(), fmt.Errorf("start ffmpeg: %w", err))
		return
	}
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		c.relay(ctx, in)
	}()
	_ = cmd.Wait() // why it has ended is reported for its stream
	c.cancel(nil)
	_ = c.process.Close()
	<-relayed
	_ = in.Close()
}

// srtArgs returns the arguments that make ffmpeg accept one client by SRT and write what it
// receives to its standard output.
func srtArgs(port int, options url.Values) []string {
	q := url.Values{"mode": {"listener"}, "listen_timeout": {strconv.FormatInt(srtTimeout.Microseconds(), 10)}}
	maps.Copy(q, options)
	return []string{
		"-hide_banner", "-nostdin", "-nostats", "-loglevel", "error", "-protocol_whitelist", "srt,pipe", "-probesize", "32", "-f", "data",
		"-i", fmt.Sprintf("srt://127.0.0.1:%d?%s", port, q.Encode()), "-map", "0", "-c", "copy", "-flush_packets", "1", "-f", "data", "pipe:1",
	}
}

// relay passes the process's datagrams to the client. Before that it performs the first part of the
// handshake with the process, on behalf of the client.
func (c *srtClient) relay(ctx context.Context, stdout *os.File) {
	buf := make([]byte, 64<<10)
	began := time.Now()
	for {
		c.mu.Lock()
		waits := c.request != nil
		if waits {
			_, _ = c.process.Write(inductionOf(c.request)) // the process may not listen yet
		}
		c.mu.Unlock()
		deadline := time.Time{}
		if waits {
			deadline = time.Now().Add(srtRetry)
			if time.Since(began) > srtTimeout {
				c.s.r.refuse(c.from.Addr(), errSRTSilent)
				c.cancel(nil)
				return
			}
		}
		_ = c.process.SetReadDeadline(deadline)
		n, err := c.process.Read(buf)
		switch {
		case errors.Is(err, net.ErrClosed), ctx.Err() != nil:
			return
		case err != nil: // the process does not listen yet, or has not answered
			if !errors.Is(err, os.ErrDeadlineExceeded) && tasks.Sleep(ctx, srtRetry) != nil {
				return
			}
			continue
		}
		if !c.forward(buf[:n], stdout) {
			return
		}
	}
}

// forward passes a datagram of the process on to the client. It handles those of the handshake. It
// returns false if the client is refused.
func (c *srtClient) forward(b []byte, stdout *os.File) bool {
	if !isHandshake(b) {
		c.s.reply(b, c.from)
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := binary.BigEndian.Uint32(b[srtType:])
	switch {
	case kind == srtInduction && c.request != nil:
		copy(c.cookie[:], b[srtCookie:])
		c.send(c.request)
		return true
	case kind == srtInduction:
		return true
	case kind >= srtRejected && kind < srtLast:
		c.s.reply(b, c.from)
		err := fmt.Errorf("refused with code %d of SRT", kind)
		if kind == srtBadSecret || kind == srtUnsecure {
			err = errUnsecure
		}
		c.s.r.refuse(c.from.Addr(), err)
		c.cancel(err)
		return false
	case kind == srtConclusion && c.request != nil:
		c.request = nil
		c.s.r.guard.forgive(clientaddr.Source(c.from.Addr()))
		if err := c.publish(stdout); err != nil {
			c.s.reply(rejection(b, srtConflict), c.from)
			c.s.r.refuse(c.from.Addr(), err)
			c.cancel(err)
			return false
		}
	}
	c.s.reply(b, c.from)
	return true
}

// publish makes the client the producer.
func (c *srtClient) publish(stdout *os.File) error {
	buf := make([]byte, 16<<10)
	next := func(deadline time.Time) ([]byte, error) {
		_ = stdout.SetReadDeadline(deadline)
		n, err := stdout.Read(buf)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			err = errEnded
		}
		return buf[:n], err
	}
	return c.s.r.publish(newProducer(c.from.String(), newTSStream(next, func() { c.cancel(nil) }), time.Now()))
}

// inductionOf returns the first packet of a client's handshake. It makes the packet from request, which
// is the second packet that a client sends.
func inductionOf(request []byte) []byte {
	b := slices.Clone(request[:srtExtensions])
	binary.BigEndian.PutUint32(b[srtVersion:], 4)
	binary.BigEndian.PutUint16(b[srtEncryption:], 0)
	binary.BigEndian.PutUint16(b[srtExtensionFlag:], 2)
	binary.BigEndian.PutUint32(b[srtType:], srtInduction)
	binary.BigEndian.PutUint32(b[srtCookie:], 0)
	return b
}
