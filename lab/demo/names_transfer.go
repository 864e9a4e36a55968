package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
)

// arrived returns the number of bytes that the phone has received.
func (d *namesDemo) arrived() int64 {
	if st, err := os.Stat(d.file("received")); err == nil {
		return st.Size()
	}
	return 0
}

// transfer starts receiving at the phone and sending at the desk. The returned functions wait for
// the end of each.
func (d *namesDemo) transfer(ctx context.Context, from io.Reader, args ...string) (recv, send func() error, err error) {
	if recv, err = d.receive(ctx); err != nil {
		return nil, nil, err
	}
	send, err = d.send(ctx, from, args...)
	return recv, send, err
}

// receive starts receiving at the phone. The returned function waits for the end.
func (d *namesDemo) receive(ctx context.Context) (wait func() error, err error) {
	out, err := os.Create(d.file("received"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := d.lab.Host("phone").Command(ctx, d.Binary, "mf", "recv", "--name-key", d.file("phone.key"))
	cmd.Stdout = out
	return run(cmd)
}

// send starts sending to the phone at the desk. The returned function waits for the end.
func (d *namesDemo) send(ctx context.Context, from io.Reader, args ...string) (wait func() error, err error) {
	cmd := d.lab.Host("desk").Command(ctx, d.Binary, append(append([]string{"mf", "send"}, args...), d.names["phone"])...)
	cmd.Stdin = from
	return run(cmd)
}

// run starts a program. The returned function waits for its end, in bounded time.
func run(cmd *exec.Cmd) (wait func() error, err error) {
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return func() error {
		late := time.AfterFunc(namesWithin, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := <-ended; err != nil {
			return fmt.Errorf("%w: %q: %w: %s", ErrFailed, cmd.Args[1:], err, bytes.TrimSpace(said.Bytes()))
		}
		return nil
	}, nil
}

// paced reads from an io.Reader at a limited rate.
type paced struct {
	r     io.Reader
	rate  float64 // bytes a second
	given int
	since time.Time
}

func (p *paced) Read(b []byte) (int, error) {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	due := p.since.Add(time.Duration(float64(p.given) / p.rate * float64(time.Second)))
	_ = tasks.Sleep(context.Background(), time.Until(due)) // at most a few milliseconds
	n, err := p.r.Read(b[:min(len(b), namesChunk)])
	p.given += n
	return n, err
}
