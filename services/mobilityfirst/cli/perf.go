package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/host"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
)

func mfPingCommand(app *commands.App) *cobra.Command {
	var a attachment
	count, every, within := 4, time.Second, 10*time.Second
	cmd := &cobra.Command{
		Use:     "ping NAME",
		Short:   "Measure the round-trip time to the host of a name",
		Example: `  sluice mf ping 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930`,
		Args:    command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := parseName(args[0])
			if err != nil {
				return err
			}
			if count < 1 || every < 10*time.Millisecond || within < time.Millisecond || within > time.Minute {
				return &command.UsageError{Err: errors.New("want --count from 1, --every from 10ms, --within from 1ms to 1m")}
			}
			return a.use(cmd.Context(), func(ctx context.Context, c *hostapi.Client) error {
				for i := range count {
					if i > 0 && tasks.Sleep(ctx, every) != nil {
						return nil
					}
					took, err := c.Ping(to, within)
					if err != nil {
						return ignoreInterrupt(ctx, err)
					}
					app.Printf("%v: %v", to, took.Round(time.Microsecond))
				}
				return nil
			})
		},
	}
	a.flags(cmd)
	flags := cmd.Flags()
	flags.IntVar(&count, "count", count, "number of pings")
	flags.DurationVar(&every, "every", every, "pause between an answer and the next ping")
	flags.DurationVar(&within, "within", within, "timeout of each ping")
	return cmd
}

func mfPerfCommand(app *commands.App) *cobra.Command {
	var a attachment
	size, during, offered, multihoming, multicast := config.Size(1<<20), 5*time.Second, units.Rate(0), false, false
	cmd := &cobra.Command{
		Use:   "perf NAME",
		Short: "Measure how fast chunks go to a name",
		Long: `Sends chunks for a while, and prints how many were taken over in that time. The other side runs
"sluice mf recv --discard --follow". With --rate it sends no faster than that, and counts what was
taken over by the end. With --multicast a chunk counts when each host that has the name has taken
it over: the rate is that of the slowest.`,
		Example: `  sluice mf perf 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930
  sluice mf perf --chunk 1KiB --rate 50Mbit --time 10s 9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930`,
		Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := parseName(args[0])
			if err != nil {
				return err
			}
			if size < 1 || size > host.MaxChunk || during < 100*time.Millisecond {
				return &command.UsageError{Err: fmt.Errorf("want --chunk from 1 byte to %v, --time from 100ms", config.Size(host.MaxChunk))}
			}
			if multihoming && multicast {
				return &command.UsageError{Err: errors.New("--multihoming and --multicast: want one of them")}
			}
			return a.use(cmd.Context(), func(ctx context.Context, c *hostapi.Client) error {
				service := frame.Service(0)
				switch {
				case multihoming:
					service = frame.Multihoming
				case multicast:
					service = frame.Multicast
				}
				return perf(ctx, app, sendTo(c, to, service), to, int(size), during, float64(offered))
			})
		},
	}
	a.flags(cmd)
	cmd.Flags().TextVar(&size, "chunk", size, "size of chunks")
	cmd.Flags().DurationVar(&during, "time", during, "duration of the measurement")
	cmd.Flags().TextVar(&offered, "rate", offered, "maximum rate, like 50Mbit; 0 for as fast as chunks are taken over")
	multihomingFlag(cmd, &multihoming)
	multicastFlag(cmd, &multicast)
	return cmd
}

// perfResult is the result of a measurement.
type perfResult struct {
	Name          frame.GUID `json:"name"`
	Chunk         int        `json:"chunk_bytes"`
	Chunks        int64      `json:"chunks"`
	Seconds       float64    `json:"seconds"`
	BitsPerSecond float64    `json:"bits_per_second"`
}

// perf sends chunks, after a first one that finds the path.
func perf(ctx context.Context, app *commands.App, send func(context.Context, []byte, func(error)) error, to frame.GUID, size int, during time.Duration, offered float64) error {
	first := &chunkSender{send: send}
	if _, err := first.wait(first.sendOne(ctx, make([]byte, size))); err != nil {
		return ignoreInterrupt(ctx, err)
	}
	t, payload, began := &chunkSender{send: send}, make([]byte, size), time.Now()
	var err error
	for sent := 0; err == nil && ctx.Err() == nil && time.Since(began) < during; sent++ {
		if offered > 0 {
			due := began.Add(time.Duration(float64(sent*size*8) / offered * float64(time.Second)))
			if tasks.Sleep(ctx, time.Until(due)) != nil || time.Since(began) >= during {
				break
			}
		}
		err = t.sendOne(ctx, payload)
	}
	n, err := t.wait(err)
	if err != nil {
		return ignoreInterrupt(ctx, err)
	}
	took := time.Since(began)
	r := perfResult{to, size, n / int64(size), took.Seconds(), float64(n) * 8 / took.Seconds()}
	if app.JSON {
		return app.Print(r, nil)
	}
	app.Printf("%d chunks of %s in %v: %s", r.Chunks, units.FormatSize(int64(size)), took.Round(time.Millisecond), rate(n, took))
	return nil
}
