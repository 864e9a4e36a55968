package qos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
)

// transfer sends so many bytes from one host to the other, over several subflows or plain TCP.
// It returns when all of them have arrived as they were sent.
func (j *joins) transfer(ctx context.Context, size int64, multipath bool) error {
	ctx, cancel := context.WithTimeout(ctx, carriedTimeout)
	defer cancel()
	return j.carry(ctx, subflowPort, io.LimitReader(randomBytes(), size), multipath)
}

func randomBytes() io.Reader {
	var seed [32]byte
	binary.NativeEndian.PutUint64(seed[:], rand.Uint64())
	return rand.NewChaCha8(seed)
}

// carry sends all that is read from one host to a port of the other.
func (j *joins) carry(ctx context.Context, port uint16, from io.Reader, multipath bool) error {
	var lc net.ListenConfig
	lc.SetMultipathTCP(multipath)
	var listener net.Listener
	to := netip.AddrPortFrom(j.lab.Host("b").Addr(), port)
	err := j.lab.Host("b").Do(func() (err error) { listener, err = lc.Listen(ctx, "tcp4", to.String()); return err })
	if err != nil {
		return err
	}
	defer listener.Close()
	read := make(chan received, 1)
	taken, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	go func() { read <- receive(taken, listener) }()
	d := net.Dialer{}
	d.SetMultipathTCP(multipath)
	var conn net.Conn
	err = j.lab.Host("a").Do(func() (err error) { conn, err = d.DialContext(ctx, "tcp4", to.String()); return err })
	if err != nil {
		return errors.Join(err, listener.Close(), (<-read).err)
	}
	defer conn.Close()
	var kernels string
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		kernels = j.kernels()
		conn.Close()
		leave()
	})
	tcp := conn.(*net.TCPConn)
	if multi, err := tcp.MultipathTCP(); err != nil || multi != multipath {
		return fmt.Errorf("multipath is %v: %w", multi, errors.Join(err, conn.Close(), (<-read).err))
	}
	sum := sha256.New()
	n, err := io.Copy(tcp, io.TeeReader(from, sum))
	err = errors.Join(err, tcp.CloseWrite())
	got := <-read
	if !stop() {
		<-told
		return fmt.Errorf("%w: %w\n%s", context.Cause(ctx), errors.Join(err, got.err), kernels)
	}
	if err = errors.Join(err, got.err); err == nil && (got.bytes != n || !bytes.Equal(got.sum, sum.Sum(nil))) {
		err = fmt.Errorf("%d bytes were sent, and %d arrived, or others", n, got.bytes)
	}
	return err
}

// received is what has come by a connection.
type received struct {
	bytes int64
	sum   []byte
	err   error
}

// receive takes one connection.
func receive(ctx context.Context, listener net.Listener) (r received) {
	c, err := listener.Accept()
	if err != nil {
		return received{err: err}
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	sum := sha256.New()
	r.bytes, r.err = io.Copy(sum, c)
	r.sum = sum.Sum(nil)
	return r
}

// kernels is what both hosts' kernels say of their connections: what tells one that does not
// arrive because of the network from one whose receiver holds it back.
func (j *joins) kernels() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.t.Context()), testTimeout)
	defer cancel()
	var all []string
	for _, host := range []string{"b", "a"} {
		for _, args := range [][]string{{"ss", "-tinmO"}, {"ss", "-MinmO"}, {"nstat", "-as"}} {
			out, err := j.lab.Host(host).Command(ctx, args[0], args[1:]...).CombinedOutput()
			all = append(all, fmt.Sprintf("%s: %v: %v\n%s", host, args, err, out))
		}
	}
	return strings.Join(all, "\n")
}
