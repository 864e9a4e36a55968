package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/cinema/media"
)

const (
	// minBackoff is the first pause before ffmpeg is started again. The pause doubles after each
	// failure up to maxBackoff.
	minBackoff, maxBackoff = 500 * time.Millisecond, 10 * time.Second
	// stableTime is how long ffmpeg must have sent before the pauses start from minBackoff
	// again.
	stableTime = 10 * time.Second
	// processTimeout bounds the time in which ffmpeg sends nothing or accepts no input, and the
	// time in which a producer sends nothing. After that, the gateway ends ffmpeg or the stream.
	processTimeout = 15 * time.Second
	// finishTimeout is how long ffmpeg may take to send the rest of its input.
	finishTimeout = 500 * time.Millisecond
	// killTimeout bounds the wait for a killed process.
	killTimeout = 2 * time.Second
)

var (
	errProcessSilent = fmt.Errorf("nothing has come for %v", processTimeout)
	// noSound holds parts of ffmpeg's messages for a source without sound.
	noSound = []string{"matches no streams", "does not contain any stream"}
)

// ffmpegSource reads a channel's source with ffmpeg, which it restarts whenever it ends.
type ffmpegSource struct {
	ffmpeg       string
	source       source
	ch           *channel
	properties   sourceProperties
	firstBackoff time.Duration // minBackoff, or less in tests
}

// run keeps ffmpeg running until ctx ends.
func (f *ffmpegSource) run(ctx context.Context) {
	// The kernel kills ffmpeg when the thread that has started it ends. So this thread must
	// live as long as the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mute := false // ffmpeg has found no sound, which probe may not know if there is no ffprobe
	for pause := f.firstBackoff; ctx.Err() == nil; pause = min(2*pause, maxBackoff) {
		heard, err := time.Duration(0), error(nil)
		switch {
		case f.source.waits != nil:
			err = f.receive(ctx)
		default:
			f.properties = f.probe(ctx)
			f.properties.silent = f.properties.silent || mute
			heard, err = f.runOnce(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if heard >= stableTime {
			pause = f.firstBackoff
		}
		mute = !mute && slices.ContainsFunc(noSound, func(sign string) bool { return strings.Contains(err.Error(), sign) })
		f.ch.recordSourceError(err)
		if tasks.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// runOnce runs ffmpeg until it ends. It returns for how long ffmpeg has sent, and why it has ended.
func (f *ffmpegSource) runOnce(ctx context.Context) (heard time.Duration, err error) {
	var stdin io.Reader
	if f.properties.copied {
		stdin = strings.NewReader(f.source.concatList())
	}
	p, err := f.startWith(ctx, f.properties, stdin)
	if err != nil {
		return 0, err
	}
	f.ch.setProducer(fmt.Sprintf("ffmpeg, process %d", p.cmd.Process.Pid))
	return p.wait()
}

// process is a running ffmpeg that sends a channel's datagrams.
type process struct {
	cmd     *exec.Cmd
	conn    *net.UDPConn // at which its datagrams arrive
	stderr  *tail
	ctx     context.Context
	cancel  context.CancelCauseFunc
	reading chan time.Duration

	stdin    *os.File // to which write writes; nil if the process reads its source itself
	finished sync.Once
	result   error
}

// start starts an ffmpeg that reads what is written to it. The caller ends it with finish.
func (f *ffmpegSource) start(ctx context.Context, properties sourceProperties) (*process, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("input for ffmpeg: %w", err)
	}
	defer in.Close()
	p, err := f.startWith(ctx, properties, in)
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	p.stdin = out
	return p, nil
}

// startWith starts an ffmpeg with the given standard input. The caller calls wait.
func (f *ffmpegSource) startWith(ctx context.Context, properties sourceProperties, stdin io.Reader) (*process, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("port for ffmpeg: %w", err)
	}
	_ = conn.SetReadBuffer(2 << 20) // up to the kernel's limit
	port := uint16(conn.LocalAddr().(*net.UDPAddr).Port)
	p := &process{conn: conn, stderr: &tail{source: f.source.address}, reading: make(chan time.Duration, 1)}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.cmd = f.command(p.ctx, p.stderr, f.source.command(f.ch.currentSpec(), port, time.Now(), properties))
	p.cmd.Stdin = stdin
	if err := p.cmd.Start(); err != nil {
		p.cancel(nil)
		_ = conn.Close()
		return nil, fmt.Errorf("start ffmpeg: %w", err)
	}
	f.ch.setPicture(f.source.output(f.ch.currentSpec(), properties).text, properties.blind)
	go func() { p.reading <- f.read(conn, properties.blind, p.cancel) }()
	return p, nil
}

// write gives the process a part of its input.
func (p *process) write(b []byte) error {
	_ = p.stdin.SetWriteDeadline(time.Now().Add(processTimeout))
	_, err := p.stdin.Write(b)
	return err
}

// finish ends the input of the process, waits until it has ended, and returns why. It kills the
// process if that does not end in time.
func (p *process) finish() error {
	p.finished.Do(func() {
		_ = p.stdin.Close()
		kill := time.AfterFunc(finishTimeout, func() { p.cancel(nil) })
		defer kill.Stop()
		_, p.result = p.wait()
	})
	return p.result
}

// wait waits until the process has ended, and returns for how long it has sent, and why it ended.
func (p *process) wait() (heard time.Duration, err error) {
	err = p.cmd.Wait()
	_ = p.conn.Close()
	heard = <-p.reading
	if cause := context.Cause(p.ctx); errors.Is(cause, errProcessSilent) {
		err = cause
	}
	p.cancel(nil)
	switch text := p.stderr.String(); {
	case text != "":
		err = fmt.Errorf("ffmpeg has ended: %s", text)
	case err == nil:
		err = errors.New("ffmpeg has ended: its source has")
	default:
		err = fmt.Errorf("ffmpeg has ended: %w", err)
	}
	return heard, err
}

// command returns a command that is killed when ctx ends, and also if this process dies.
func (f *ffmpegSource) command(ctx context.Context, stderr *tail, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, f.ffmpeg, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=" + os.Getenv("TZ"), "AV_LOG_FORCE_NOCOLOR=1"}
	cmd.Dir = "/"
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.WaitDelay = killTimeout
	return cmd
}

// read processes ffmpeg's datagrams until the connection is closed, and returns the time from the first
// datagram to the last one. It ends ffmpeg by calling end if no datagrams come for processTimeout.
// Black pictures, which ffmpeg generates for a source without a picture (blind), do not count.
func (f *ffmpegSource) read(conn *net.UDPConn, blind bool, end context.CancelCauseFunc) time.Duration {
	buf := make([]byte, media.MaxDatagram+1)
	var first time.Time
	var pace pacer
	last := time.Now()
	for {
		now := time.Now()
		for _, raw := range pace.release(now) {
			f.ch.feed(raw)
		}
		_ = conn.SetReadDeadline(pace.due(now.Add(time.Second)))
		n, _, err := conn.ReadFromUDPAddrPort(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if time.Since(last) > processTimeout {
				end(errProcessSilent)
			}
			continue
		case errors.Is(err, net.ErrClosed):
			if first.IsZero() {
				return 0
			}
			return last.Sub(first)
		case err != nil:
			continue // an error of one datagram
		}
		p, err := media.Parse(buf[:n])
		now = time.Now()
		if !blind || p.Audio() {
			last = now
		}
		if first.IsZero() {
			first = now
		}
		if err != nil { // feed counts it
			f.ch.feed(buf[:n])
			continue
		}
		pace.add(p, buf[:n], now)
	}
}
