package cli

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/demo"
)

func demoCommand(a *app) *cobra.Command {
	o := demo.Options{Size: demo.DefaultSize, Line: lab.WANOptions{Rate: demo.DefaultRate, Loss: demo.DefaultLoss}}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Download a file over a long lossy link, direct and by SOS (root)",
		Long: `Builds a network on this machine: a client and a server on two switches with a
long, lossy link between them, a controller, and an agent at each side. Then curl
downloads a file from a real web server twice, directly and carried by the
agents. Everything is removed at the end, also after Ctrl-C.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Size < 1 || o.Line.Rate <= 0 || o.Line.Loss > 0.5 || o.Line.RTT < 0 {
				return &command.UsageError{Err: errors.New("--size and --rate must be positive, --loss at most 50%, --rtt not negative")}
			}
			var err error
			if o.Binary, _, err = a.programs(); err != nil {
				return err
			}
			o.Out, o.TTY = a.Out, a.Out == os.Stdout && isTerminal(os.Stdout)
			if o.Line.Loss == 0 {
				o.Line.Loss = -1 // A negative loss means none.
			}
			return demo.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.Var(command.SizeFlag(&o.Size), "size", "size of the file")
	f.Var(command.RateFlag(&o.Line.Rate), "rate", "rate of the long link")
	f.DurationVar(&o.Line.RTT, "rtt", demo.DefaultRTT, "round-trip time of the long link")
	f.Var(command.ShareFlag(&o.Line.Loss), "loss", "share of the packets lost on the long link, each way")
	f.BoolVar(&o.Keep, "keep", false, "leave the network up afterwards, until Ctrl-C")
	cmd.AddCommand(demoHandoverCommand(a), demoCinemaCommand(a), demoNamesCommand(a))
	return cmd
}

func demoHandoverCommand(a *app) *cobra.Command {
	o := demo.HandoverOptions{Rate: demo.DefaultRadioRate}
	cmd := &cobra.Command{
		Use:   "handover",
		Short: "Roam between access points and operators during a download (root)",
		Long: `Builds the networks of two operators on this machine, each with a controller, and
a device with three radios. A download and a stream of UDP packets run to the
device while it moves: to another radio, to another access point, to the other
operator and back. A table says what each move lost and how long it was silent.
Everything is removed at the end, also after Ctrl-C.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Rate < 1e6 || o.Rate > 1e9 || o.Delay < 0 || o.Delay > time.Second {
				return &command.UsageError{Err: errors.New("--rate must be between 1Mbit and 1Gbit, --delay between 0 and 1s")}
			}
			var err error
			if o.Binary, o.Lab, err = a.programs(); err != nil {
				return err
			}
			o.Out, o.TTY = a.Out, a.Out == os.Stdout && isTerminal(os.Stdout)
			return demo.RunHandover(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.Var(command.RateFlag(&o.Rate), "rate", "rate of each radio")
	f.DurationVar(&o.Delay, "delay", demo.DefaultRadioDelay, "delay of each radio, one way")
	f.BoolVar(&o.Keep, "keep", false, "leave the networks up afterwards, until Ctrl-C")
	return cmd
}

func demoCinemaCommand(a *app) *cobra.Command {
	o := demo.CinemaOptions{}
	cmd := &cobra.Command{
		Use:   "cinema",
		Short: "Watch live channels in a browser, which the network switches (root)",
		Long: `Builds a network of four switches on this machine, with two ingress and two egress
gateways, and puts four test patterns on the air. Chromium opens the gateways' site
and changes channel again and again; a table says how long each change took, from the
key to the first picture of the new channel. Everything is removed at the end, also
after Ctrl-C. Chromium and ffmpeg must be installed.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Changes < 1 || o.Changes > 1000 {
				return &command.UsageError{Err: errors.New("--changes must be between 1 and 1000")}
			}
			var err error
			if o.Binary, _, err = a.programs(); err != nil {
				return err
			}
			o.Out = a.Out
			return demo.RunCinema(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Changes, "changes", demo.DefaultChanges, "how often the channel is changed")
	f.BoolVar(&o.Keep, "keep", false, "leave the network up afterwards, until Ctrl-C")
	return cmd
}

func demoNamesCommand(a *app) *cobra.Command {
	o := demo.NamesOptions{}
	cmd := &cobra.Command{
		Use:   "names",
		Short: "Send to a name that moves and is away, and by a function (root)",
		Long: `Builds a network of four switches on this machine, with a desk, a depot and a phone.
The desk sends to the phone's name while the phone moves from switch to switch, changes
to another network and back, and is out of reach: what is sent then waits at the depot. A
table says what arrived meanwhile, and how long after each change. Then a text goes by a
function on its way. Everything is removed at the end, also after Ctrl-C.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Binary, _, err = a.programs(); err != nil {
				return err
			}
			o.Out = a.Out
			return demo.RunNames(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave the network up afterwards, until Ctrl-C")
	return cmd
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
