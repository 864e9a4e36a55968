package ingress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/cinema/media"
	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// firstPause is how long a child that has ended stays ended, doubled with each in a row
	// up to longestPause.
	firstPause, longestPause = 500 * time.Millisecond, 10 * time.Second
	// steady is how long one has to have been heard for the pauses to begin anew.
	steady = 10 * time.Second
	// patience is how long a child may be silent before it is ended: at its begin, unless it
	// waits for a producer, and once it was heard.
	patience = 15 * time.Second
	// childGrace is how long one that was killed may take to be gone.
	childGrace = 2 * time.Second
)

var (
	errSilentChild = fmt.Errorf("nothing has come for %v", patience)
	// noSound is what ffmpeg says of a source that has none.
	noSound = []string{"matches no streams", "does not contain any stream"}
)

// child reads a channel's source by ffmpeg, which is started again whenever it ends.
type child struct {
	ffmpeg string
	source source
	ch     *channel
	is     shape
	first  time.Duration // the first pause
}

// run has ffmpeg running until ctx ends.
func (k *child) run(ctx context.Context) {
	// The kernel kills the child with the thread that has started it: with this one, which
	// ends with the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if k.source.file != "" {
		k.is = k.look(ctx)
	}
	for pause := k.first; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		heard, err := k.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard >= steady {
			pause = k.first
		}
		k.learn(err)
		k.ch.failed(err)
		if tasks.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// learn has what was wrong with a child's way to read its source done otherwise next time.
func (k *child) learn(err error) {
	for _, sign := range noSound {
		if strings.Contains(err.Error(), sign) {
			k.is.silent = true
		}
	}
}

// once runs ffmpeg to its end and says for how long it was heard.
func (k *child) once(ctx context.Context) (heard time.Duration, err error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, fmt.Errorf("port for ffmpeg: %w", err)
	}
	defer conn.Close()
	_ = conn.SetReadBuffer(2 << 20) // as much of it as the kernel permits
	port := uint16(conn.LocalAddr().(*net.UDPAddr).Port)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	said := &tail{}
	cmd := k.prepare(ctx, said, k.source.command(k.ch.current(), port, k.is))
	if k.is.copied {
		cmd.Stdin = strings.NewReader(k.source.list())
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start ffmpeg: %w", err)
	}
	k.ch.produced(fmt.Sprintf("ffmpeg, process %d", cmd.Process.Pid))
	reading := make(chan time.Duration, 1)
	go func() { reading <- k.read(conn, cancel) }()
	err = cmd.Wait()
	_ = conn.Close()
	heard = <-reading
	if cause := context.Cause(ctx); errors.Is(cause, errSilentChild) {
		err = cause
	}
	switch text := said.String(); {
	case text != "":
		err = fmt.Errorf("ffmpeg has ended: %s", text)
	case err == nil:
		err = errors.New("ffmpeg has ended: its source has")
	default:
		err = fmt.Errorf("ffmpeg has ended: %w", err)
	}
	return heard, err
}

// prepare makes a command that ends with ctx, and with this process however that ends.
func (k *child) prepare(ctx context.Context, said *tail, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.ffmpeg, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=" + os.Getenv("TZ"), "AV_LOG_FORCE_NOCOLOR=1"}
	cmd.Dir = "/"
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = childGrace
	return cmd
}

// read takes what ffmpeg sends until the connection is closed, and says for how long it
// came. It ends a child that is silent.
func (k *child) read(conn *net.UDPConn, end context.CancelCauseFunc) time.Duration {
	buf := make([]byte, media.MaxDatagram+1)
	var first time.Time
	var sound pacer
	last := time.Now()
	for {
		now := time.Now()
		for _, raw := range sound.release(now) {
			k.ch.feed(raw)
		}
		_ = conn.SetReadDeadline(sound.due(now.Add(time.Second)))
		n, _, err := conn.ReadFromUDPAddrPort(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			waits := first.IsZero() && k.source.listens
			if time.Since(last) > patience && !waits {
				end(errSilentChild)
			}
			continue
		case errors.Is(err, net.ErrClosed):
			if first.IsZero() {
				return 0
			}
			return last.Sub(first)
		case err != nil:
			continue // of one datagram
		}
		if last = time.Now(); first.IsZero() {
			first = last
		}
		if p, err := media.Parse(buf[:n]); err == nil && p.Audio() {
			sound.add(p, buf[:n], last)
		} else {
			k.ch.feed(buf[:n])
		}
	}
}
