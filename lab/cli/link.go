package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/delayline"
)

// linkCommand returns the command "link".
func (f *labFlags) linkCommand() *cobra.Command {
	var change linkChange
	cmd := &cobra.Command{
		Use:   "link NAME",
		Short: "Change a link's rate, delay, jitter, loss or queue while it carries traffic",
		Long: `Changes a link's rate, delay, jitter, loss or queue while it carries traffic. Its
commands plug the cable in and out, and move a host's cable to another switch.`,
		Example: `  sluice-lab link wan --loss 0.1%
  sluice-lab link down wan
  sluice-lab link move dev1-eth0 edge3`,
		Args: command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			if err := change.apply(cmd, l, args[0]); err != nil {
				return err
			}
			return f.print(cmd.Context(), l, args[0])
		},
	}
	f.nameFlag(cmd)
	fl := cmd.Flags()
	fl.StringVar(&change.rate, "rate", "", "rate, as in 300Mbit")
	fl.StringVar(&change.delay, "delay", "", "delay one way, as in 25ms")
	fl.StringVar(&change.jitter, "jitter", "", "jitter, as in 1ms")
	fl.StringVar(&change.loss, "loss", "", "loss, as in 0.01%")
	fl.StringVar(&change.queue, "queue", "", "queue, as in 512KiB")
	fl.StringVar(&change.direction, "direction", "both", "direction of the link: both, a-b or b-a")
	cmd.AddCommand(
		f.plugCommand("up", "Plug a link's cable in", true),
		f.plugCommand("down", "Unplug a link's cable", false),
		f.moveCommand())
	return cmd
}

// plugCommand returns the command "link up" or "link down".
func (f *labFlags) plugCommand(use, short string, up bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use + " NAME",
		Short: short,
		Args:  command.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			if err := l.SetLink(cmd.Context(), args[0], up); err != nil {
				return err
			}
			return f.print(cmd.Context(), l, args[0])
		},
	}
	f.nameFlag(cmd)
	return cmd
}

// moveCommand returns the command "link move".
func (f *labFlags) moveCommand() *cobra.Command {
	var port int
	cmd := &cobra.Command{
		Use:   "move NAME SWITCH",
		Short: "Move a host's cable to another switch, as when a device joins another access point",
		Args:  command.ExactArgs("NAME", "SWITCH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			if err := l.MoveLinkToPort(cmd.Context(), args[0], args[1], port); err != nil {
				return err
			}
			return f.print(cmd.Context(), l, args[0])
		},
	}
	f.nameFlag(cmd)
	cmd.Flags().IntVar(&port, "port", 0, "OpenFlow port at the switch; 0 is the lowest free one")
	return cmd
}

// linkChange holds the flags of "link".
type linkChange struct {
	rate, delay, jitter, loss, queue, direction string
}

func (c linkChange) apply(cmd *cobra.Command, l *lab.Lab, name string) error {
	ctx := cmd.Context()
	if c.rate+c.delay+c.jitter+c.loss+c.queue == "" {
		return l.SetLinkDirections(ctx, name, nil, nil) // This checks only that the link exists.
	}
	return l.ChangeLink(ctx, name, func(aToB, bToA *delayline.Params) error {
		var one, other *delayline.Params
		switch c.direction {
		case "both":
			one, other = aToB, bToA
		case "a-b":
			one = aToB
		case "b-a":
			one = bToA
		default:
			return &command.UsageError{Err: fmt.Errorf("--direction %q is not both, a-b or b-a", c.direction)}
		}
		if err := c.edit(one); err != nil {
			return &command.UsageError{Err: err}
		}
		if other != nil {
			return c.edit(other)
		}
		return nil
	})
}

func (c linkChange) edit(p *delayline.Params) error {
	return errors.Join(
		setUnit(&p.Rate, "--rate", c.rate, units.ParseRate),
		setUnit(&p.Delay, "--delay", c.delay, units.ParseTime),
		setUnit(&p.Jitter, "--jitter", c.jitter, units.ParseTime),
		setUnit(&p.Loss, "--loss", c.loss, units.ParseShare),
		setUnit(&p.Queue, "--queue", c.queue, units.ParseSize),
	)
}

// setUnit parses a flag with a unit into target, and leaves target alone if the flag is empty.
func setUnit[T any](target *T, flag, text string, parse func(string) (T, error)) error {
	if text == "" {
		return nil
	}
	v, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	*target = v
	return nil
}
