package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/demo"
	"github.com/sluice-net/sluice/lab"
)

func demoCommand(app *App) *cobra.Command {
	var (
		o        demo.Options
		megabyte int
		rate     float64
		loss     float64
		rtt      time.Duration
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Download a file over a long lossy link, direct and by SOS (root)",
		Long: `Builds a network on this machine: a client and a server on two switches with a
long, lossy link between them, a controller, and an agent at each side. Then curl
downloads a file from a real web server twice, directly and carried by the
agents. Everything is removed at the end, also after Ctrl-C.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if megabyte < 1 || rate <= 0 || loss < 0 || loss > 50 || rtt < 0 {
				return &UsageError{errors.New("--size and --rate must be positive, --loss between 0 and 50 percent, --rtt not negative")}
			}
			o.Out, o.TTY = app.Out, app.Out == os.Stdout && isTerminal(os.Stdout)
			o.Size = int64(megabyte) * 1e6
			o.Line = lab.WANOptions{Rate: rate * 1e6, RTT: rtt, Loss: loss / 100}
			if loss == 0 {
				o.Line.Loss = -1 // the lab's word for none
			}
			return runDemo(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&megabyte, "size", demo.DefaultSize/1e6, "size of the file in MB")
	f.Float64Var(&rate, "rate", demo.DefaultRate/1e6, "rate of the long link in Mbit/s")
	f.DurationVar(&rtt, "rtt", demo.DefaultRTT, "round-trip time of the long link")
	f.Float64Var(&loss, "loss", 100*demo.DefaultLoss, "packets lost on the long link, in percent, each way")
	f.BoolVar(&o.Keep, "keep", false, "leave the network up afterwards, until Ctrl-C")
	cmd.AddCommand(demoHandoverCommand(app))
	return cmd
}

func demoHandoverCommand(app *App) *cobra.Command {
	var (
		o    demo.HandoverOptions
		rate float64
	)
	cmd := &cobra.Command{
		Use:   "handover",
		Short: "Roam between access points and operators under a running download (root)",
		Long: `Builds the networks of two operators on this machine, each with a controller, and
a device with three radios. A download and a stream of UDP packets run to the
device while it moves: to another radio, to another access point, to the other
operator and back. A table says what each move lost and how long it was silent.
Everything is removed at the end, also after Ctrl-C.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rate < 1 || rate > 1000 || o.Delay < 0 || o.Delay > time.Second {
				return &UsageError{errors.New("--rate must be between 1 and 1000, --delay between 0 and 1s")}
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			o.Out, o.TTY = app.Out, app.Out == os.Stdout && isTerminal(os.Stdout)
			o.Rate, o.Binary = rate*1e6, self
			return demo.RunHandover(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.Float64Var(&rate, "rate", demo.DefaultRadioRate/1e6, "rate of each radio in Mbit/s")
	f.DurationVar(&o.Delay, "delay", demo.DefaultRadioDelay, "delay of each radio, one way")
	f.BoolVar(&o.Keep, "keep", false, "leave the networks up afterwards, until Ctrl-C")
	return cmd
}

func runDemo(ctx context.Context, o demo.Options) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	o.Binary = self
	return demo.Run(ctx, o)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
