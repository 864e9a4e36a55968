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
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst/compute"
	"github.com/sluice-net/sluice/services/mobilityfirst/custody"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

// attachment holds the flags with which commands attach a name at a host.
type attachment struct {
	socket, key string
	owner       ed25519.PrivateKey // the key of the name, once it is attached
}

func (a *attachment) flags(cmd *cobra.Command) {
	socketFlag(cmd.Flags(), &a.socket)
	cmd.Flags().StringVar(&a.key, "name-key", "", "file of the key of the name to attach (default: a new name)")
}

// socketFlag adds the flag for the path of a host's socket. Its default depends on the network
// namespace, and is chosen when the socket is used.
func socketFlag(flags *pflag.FlagSet, to *string) {
	flags.StringVar(to, "socket", "", "path of the host's socket for applications (default: /run/sluice/mf.sock; in a network namespace NAME, /run/sluice/mf.NAME.sock)")
}

// open attaches the name.
func (a *attachment) open(ctx context.Context) (_ *hostapi.Client, err error) {
	if a.key == "" {
		_, a.owner, err = ed25519.GenerateKey(rand.Reader)
	} else {
		a.owner, err = readKey(a.key)
	}
	if err != nil {
		return nil, err
	}
	return hostapi.Open(ctx, a.socket, a.owner)
}

// use attaches the name, calls f, and detaches the name.
func (a *attachment) use(ctx context.Context, f func(context.Context, *hostapi.Client) error) (err error) {
	c, err := a.open(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // this ends all waiting calls
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

func mfSendCommand(app *commands.App) *cobra.Command {
	var a attachment
	size, service := config.Size(1<<20), frame.Service(0)
	delayTolerant, multihoming, multicast, through := false, false, false, ""
	cmd := &cobra.Command{
		Use:   "send NAME [FILE]",
		Short: "Send a file, or standard input, to a name",
		Long: `Cuts the input into chunks of --chunk bytes, sends them, and waits until the receiver has taken
over each of them. Nothing is lost if the receiver is away for a while: see --keep of "sluice
mf host". An empty chunk marks the end, as "sluice mf recv" expects
it. With --delay-tolerant the chunks go by a storage node, if the host has --storage, which keeps
them while the receiver is away: taken over then means that the storage node has them.

With --multihoming the chunks use all links between both hosts at one time, if there are several,
the one with the shortest round trip first.

With --multicast the chunks go to each host that has attached the name when they are sent, not to
one of them. If some hosts have not taken a chunk over, the command prints how many.

With --through each chunk goes to a function, whose result is sent to the name.
See "sluice mf compute".`,
		Example: `  sluice mf send 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930 film.mp4
  tar c . | sluice mf send 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return &command.UsageError{Err: errors.New("want a name, and optionally a file")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := parseName(args[0])
			if err != nil {
				return err
			}
			var function frame.GUID
			most := config.Size(host.MaxChunk)
			switch {
			case moreThanOne(delayTolerant, multihoming, multicast, through != ""):
				return &command.UsageError{Err: errors.New("--delay-tolerant, --multihoming, --multicast and --through: want one of them")}
			case multicast:
				service = frame.Multicast
			case multihoming:
				service = frame.Multihoming
			case delayTolerant:
				service, most = frame.DelayTolerant, config.Size(custody.MaxPayload)
			case through != "":
				if function, err = parseName(through); err != nil {
					return err
				}
				most = config.Size(compute.MaxPayload)
			}
			if size < 1 || size > most {
				return &command.UsageError{Err: fmt.Errorf("--chunk %v: want 1 byte to %v", size, most)}
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
				began, t := time.Now(), chunkSender{send: sendTo(c, to, service)}
				if through != "" {
					caller := compute.NewCaller(c, a.owner)
					work := tasks.New()
					defer work.Stop()
					work.Start(func(ctx context.Context) { _ = caller.Run(ctx) }) // it fails if the host ends, and sending fails then as well
					t.send = func(ctx context.Context, payload []byte, done func(error)) error {
						return caller.Send(ctx, function, to, payload, done)
					}
				}
				sent, err := t.sendAll(ctx, from, int(size))
				took := time.Since(began)
				fmt.Fprintf(app.Err, "%s for %v taken in %v, %s\n", units.FormatAmount(uint64(sent)), to, took.Round(time.Millisecond), rate(sent, took))
				return err
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().TextVar(&size, "chunk", size, "size of chunks")
	cmd.Flags().BoolVar(&delayTolerant, "delay-tolerant", false, "let a storage node keep the chunks while the receiver is away")
	multihomingFlag(cmd, &multihoming)
	multicastFlag(cmd, &multicast)
	cmd.Flags().StringVar(&through, "through", "", "name of a function that is called on each chunk")
	return cmd
}

// multihomingFlag adds the flag for several paths at one time.
func multihomingFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "multihoming", false, "use all links between both hosts at one time")
}

// multicastFlag adds the flag for all hosts of a name.
func multicastFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "multicast", false, "send to each host that has the name, not to one of them")
}

// moreThanOne reports whether more than one of the values is true.
func moreThanOne(all ...bool) bool {
	n := 0
	for _, set := range all {
		if set {
			n++
		}
	}
	return n > 1
}

// sendAll sends the data of a reader, and returns how many bytes were taken over.
func (t *chunkSender) sendAll(ctx context.Context, r io.Reader, size int) (taken int64, err error) {
	for {
		b := make([]byte, size)
		n, err := io.ReadFull(r, b)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return t.wait(fmt.Errorf("what is to be sent: %w", err))
		}
		if n > 0 {
			if err := t.sendOne(ctx, b[:n]); err != nil {
				return t.wait(err)
			}
		}
		if err != nil { // the empty chunk marks the end, and is sent when all chunks before it have been taken over
			if _, err := t.wait(nil); err != nil {
				return t.bytes, err
			}
			return t.wait(t.sendOne(ctx, nil))
		}
	}
}

// chunkSender sends chunks, and counts the bytes that were taken over.
type chunkSender struct {
	send  func(ctx context.Context, payload []byte, done func(error)) error
	all   sync.WaitGroup
	mu    sync.Mutex
	bytes int64
	err   error
}

// sendTo returns a function that sends chunks to a name with a service.
func sendTo(c *hostapi.Client, to frame.GUID, service frame.Service) func(context.Context, []byte, func(error)) error {
	return func(ctx context.Context, payload []byte, done func(error)) error {
		return c.Send(ctx, to, service, payload, done)
	}
}

// sendOne sends a chunk, unless an earlier one was not taken over.
func (t *chunkSender) sendOne(ctx context.Context, payload []byte) error {
	t.mu.Lock()
	failed := t.err
	t.mu.Unlock()
	if failed != nil {
		return failed
	}
	t.all.Add(1)
	err := t.send(ctx, payload, func(err error) {
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

// wait waits for the results of all chunks.
func (t *chunkSender) wait(err error) (int64, error) {
	t.all.Wait()
	if err == nil {
		err = t.err
	}
	return t.bytes, err
}

// rate formats a rate with four significant digits.
func rate(n int64, took time.Duration) string {
	v := float64(n) * 8 / max(took, time.Microsecond).Seconds()
	step := math.Pow10(int(math.Log10(max(v, 1000))) - 3)
	return units.FormatRate(math.Round(v/step) * step)
}

func mfRecvCommand(app *commands.App) *cobra.Command {
	var a attachment
	discard, follow, from := false, false, ""
	cmd := &cobra.Command{
		Use:   "recv",
		Short: "Receive chunks for a name, and write them to standard output",
		Long: `Prints the attached name to standard error, and writes received chunks to standard
output; each is taken over when it is written. A function's result
("sluice mf compute") counts as a chunk of the sender. An empty chunk, which "sluice mf send"
sends at its end, ends the command, unless --follow is given. Without --follow, chunks of other
senders than the first, or than --from, are skipped. With --follow only --from restricts the
senders.`,
		Example: `  sluice mf recv > film.mp4
  sluice mf recv --name-key laptop.key > film.mp4
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
	cmd.Flags().BoolVar(&follow, "follow", false, "continue until interrupted")
	cmd.Flags().StringVar(&from, "from", "", "name of the only sender")
	return cmd
}

// receiveAll writes received chunks to out until ctx ends or, unless follow is set, an empty chunk
// arrives. If from is not zero, it writes only the chunks of this sender. Otherwise, unless follow
// is set, it writes only those of the first sender.
func receiveAll(ctx context.Context, c *hostapi.Client, out io.Writer, from frame.GUID, follow bool, app *commands.App) error {
	in := receiver{host: c}
	others := 0
	for {
		x, err := in.receive(ctx)
		if err != nil {
			return ignoreInterrupt(ctx, err)
		}
		if from.IsZero() && !follow {
			from = x.From
		}
		leftOut := !from.IsZero() && x.From != from
		if leftOut {
			if others++; others == 1 {
				fmt.Fprintf(app.Err, "left out: what %v sends\n", x.From)
			}
		} else {
			if _, err := out.Write(x.Payload); err != nil {
				return err
			}
			in.taken(x)
		}
		if err := c.Take(x.chunk); err != nil {
			return ignoreInterrupt(ctx, err)
		}
		if !leftOut && x.Empty && !follow {
			return nil
		}
	}
}

// receiver receives the chunks for a name. Results of functions count as chunks of their senders.
type receiver struct {
	host    *hostapi.Client
	results compute.Results
}

// received is a received chunk with its sender and payload. For the result of a function these are
// the sender of the function's payload and the result; for any other chunk the Result is made from
// the chunk itself.
type received struct {
	*compute.Result
	chunk hostapi.Chunk
}

// receive waits for the next chunk.
func (in *receiver) receive(ctx context.Context) (received, error) {
	for {
		c, err := in.host.Receive(ctx)
		if err != nil || !compute.Is(c) {
			return received{&compute.Result{From: c.From, Payload: c.Payload, Empty: len(c.Payload) == 0}, c}, err
		}
		r, err := in.results.Open(c, in.host.Name)
		if err == nil && !r.Again {
			return received{r, c}, nil
		}
		if err == nil {
			err = in.host.Take(c)
		} else {
			err = in.host.Refuse(c) // the sender must not believe that it was taken over
		}
		if err != nil {
			return received{}, err
		}
	}
}

// taken records that a chunk has been written.
func (in *receiver) taken(x received) {
	if compute.Is(x.chunk) {
		in.results.Taken(x.Result)
	}
}

// ignoreInterrupt returns nil if the user has interrupted the command, and err otherwise.
func ignoreInterrupt(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
