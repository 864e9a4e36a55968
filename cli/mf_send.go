package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/mobilityfirst/frame"
	"github.com/sluice-net/sluice/mobilityfirst/host"
	"github.com/sluice-net/sluice/mobilityfirst/hostapi"
)

// attachment is how commands attach a name at a host.
type attachment struct{ socket, key string }

func (a *attachment) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.socket, "socket", hostapi.DefaultSocket, "where the host takes applications")
	cmd.Flags().StringVar(&a.key, "name-key", "", "file of the key of the name that this is; a new name if there is none")
}

// open attaches the name.
func (a *attachment) open(ctx context.Context) (*hostapi.Client, error) {
	var key ed25519.PrivateKey
	var err error
	if a.key == "" {
		_, key, err = ed25519.GenerateKey(rand.Reader)
	} else {
		key, err = readKey(a.key)
	}
	if err != nil {
		return nil, err
	}
	return hostapi.Open(ctx, a.socket, key)
}

// use opens it, has f use it, and closes it.
func (a *attachment) use(ctx context.Context, f func(context.Context, *hostapi.Client) error) (err error) {
	c, err := a.open(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // ends what waits
	defer func() {
		if stop() {
			err = errors.Join(err, c.Close())
		}
	}()
	return f(ctx, c)
}

func parseName(text string) (frame.GUID, error) {
	name, err := frame.ParseGUID(text)
	if err != nil {
		err = &command.UsageError{Err: err}
	}
	return name, err
}

func mfSendCommand(app *App) *cobra.Command {
	var a attachment
	size := config.Size(1 << 20)
	cmd := &cobra.Command{
		Use:   "send NAME [FILE]",
		Short: "Send a file, or standard input, to a name",
		Long: `Cuts it into chunks of --chunk bytes, sends them, and waits until the receiver has taken
each of them. Nothing is lost if the receiver is away for a while: see --keep of "sluice
mf host". An empty chunk at the end says that there is no more, as "sluice mf recv" expects
it.`,
		Example: `  sluice mf send 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930 film.mp4
  tar c . | sluice mf send 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return &command.UsageError{Err: errors.New("want a name, and a file or nothing")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := parseName(args[0])
			if err != nil {
				return err
			}
			if size < 1 || size > host.MaxChunk {
				return &command.UsageError{Err: fmt.Errorf("--chunk %v: want 1 byte to %v", size, config.Size(host.MaxChunk))}
			}
			from := cmd.InOrStdin()
			if len(args) == 2 {
				f, err := os.Open(args[1])
				if err != nil {
					return err
				}
				defer f.Close()
				from = f
			}
			return a.use(cmd.Context(), func(ctx context.Context, c *hostapi.Client) error {
				began := time.Now()
				sent, err := sendAll(ctx, c, to, from, int(size))
				took := time.Since(began)
				fmt.Fprintf(app.Err, "%s taken by %v in %v, %s\n", units.FormatSize(sent), to, took.Round(time.Millisecond), rate(sent, took))
				return err
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().TextVar(&size, "chunk", size, "size of chunks")
	return cmd
}

// sendAll sends what a reader has, and says how much of it was taken.
func sendAll(ctx context.Context, c *hostapi.Client, to frame.GUID, r io.Reader, size int) (taken int64, err error) {
	t := &taking{}
	for {
		b := make([]byte, size)
		n, err := io.ReadFull(r, b)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return t.wait(fmt.Errorf("what is to be sent: %w", err))
		}
		if n > 0 {
			if err := t.send(ctx, c, to, b[:n]); err != nil {
				return t.wait(err)
			}
		}
		if err != nil { // the end, which is for who has all before it
			if _, err := t.wait(nil); err != nil {
				return t.bytes, err
			}
			return t.wait(t.send(ctx, c, to, nil))
		}
	}
}

// taking counts what was taken of chunks that are sent.
type taking struct {
	all   sync.WaitGroup
	mu    sync.Mutex
	bytes int64
	err   error
}

// send sends a chunk, unless one before was not taken.
func (t *taking) send(ctx context.Context, c *hostapi.Client, to frame.GUID, payload []byte) error {
	t.mu.Lock()
	failed := t.err
	t.mu.Unlock()
	if failed != nil {
		return failed
	}
	t.all.Add(1)
	err := c.Send(ctx, to, 0, payload, func(err error) {
		defer t.all.Done()
		t.mu.Lock()
		defer t.mu.Unlock()
		if err != nil {
			t.err = err
		} else {
			t.bytes += int64(len(payload))
		}
	})
	if err != nil {
		t.all.Done()
	}
	return err
}

// wait waits until it is known of all chunks what has become of them.
func (t *taking) wait(err error) (int64, error) {
	t.all.Wait()
	if err == nil {
		err = t.err
	}
	return t.bytes, err
}

// rate is bytes in a time, to a thousandth.
func rate(n int64, took time.Duration) string {
	v := float64(n) * 8 / max(took, time.Microsecond).Seconds()
	step := math.Pow10(int(math.Log10(max(v, 1000))) - 3)
	return units.FormatRate(math.Round(v/step) * step)
}

func mfRecvCommand(app *App) *cobra.Command {
	var a attachment
	discard, follow, from := false, false, ""
	cmd := &cobra.Command{
		Use:   "recv",
		Short: "Receive what is sent to a name, to standard output",
		Long: `Prints, to standard error, the name that it receives for, and writes what comes to standard
output, chunk by chunk; each is taken when it is written. An empty chunk, as "sluice mf send"
has at its end, ends it, unless it is to --follow. What others send than who
was heard first, or --from, is left out; with --follow and without --from nothing is.`,
		Example: `  sluice mf recv --name-key laptop.key > film.mp4
  sluice mf recv --name-key laptop.key --discard --follow`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var sender frame.GUID
			if from != "" {
				var err error
				if sender, err = parseName(from); err != nil {
					return err
				}
			}
			out := app.Out
			if discard {
				out = io.Discard
			}
			return a.use(cmd.Context(), func(ctx context.Context, c *hostapi.Client) error {
				fmt.Fprintf(app.Err, "name %v\n", c.Name)
				return receiveAll(ctx, c, out, sender, follow, app)
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().BoolVar(&discard, "discard", false, "write nothing")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on until it is interrupted")
	cmd.Flags().StringVar(&from, "from", "", "name of the only sender")
	return cmd
}

// receiveAll writes what one name sends, the first if it is not given, until an empty chunk comes or ctx
// ends.
func receiveAll(ctx context.Context, c *hostapi.Client, out io.Writer, from frame.GUID, follow bool, app *App) error {
	others := 0
	for {
		x, err := c.Receive(ctx)
		if err != nil {
			return quietEnd(ctx, err)
		}
		if from.IsZero() && !follow {
			from = x.From
		}
		if !from.IsZero() && x.From != from {
			if others++; others == 1 {
				fmt.Fprintf(app.Err, "left out: what %v sends\n", x.From)
			}
		} else if _, err := out.Write(x.Payload); err != nil {
			return err
		}
		if err := c.Take(x); err != nil {
			return quietEnd(ctx, err)
		}
		if x.From == from && len(x.Payload) == 0 && !follow {
			return nil
		}
	}
}

// quietEnd is no error if the user has interrupted.
func quietEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
