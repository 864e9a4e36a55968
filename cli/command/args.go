package command

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/units"
)

// ExactArgs requires one argument for each name. Its error names the missing arguments.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return &UsageError{fmt.Errorf("%s: %s is missing", cmd.CommandPath(), strings.Join(names[len(args):], " "))}
		case len(args) > len(names):
			return &UsageError{fmt.Errorf("%s: %q is one argument too many", cmd.CommandPath(), args[len(names)])}
		}
		return nil
	}
}

// AtLeast requires an argument for each name, and allows more.
func AtLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return ExactArgs(names...)(cmd, args[:min(len(args), len(names))])
	}
}

// UpTo allows at most one argument for each name.
func UpTo(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return ExactArgs(names[:min(len(args), len(names))]...)(cmd, args)
	}
}

// flagError replaces the message of the flag library by a message that says how to write the flag's
// value.
func flagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return &UsageError{err}
	}
	want := map[string]string{
		"int": "a whole number", "float64": "a number", "duration": "a time with its unit, like 30s or 1m30s", "bool": "true or false",
	}[invalid.GetFlag().Value.Type()]
	if want == "" {
		return &UsageError{err}
	}
	return &UsageError{fmt.Errorf("--%s %q: write %s", invalid.GetFlag().Name, invalid.GetValue(), want)}
}

// NoArgs requires that there is no argument.
func NoArgs(cmd *cobra.Command, args []string) error { return ExactArgs()(cmd, args) }

// OneOf requires one argument, which must be one of the words.
func OneOf(words ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := ExactArgs(strings.Join(words, "|"))(cmd, args); err != nil {
			return err
		}
		if !slices.Contains(words, args[0]) {
			return &UsageError{fmt.Errorf("%s: %q is not one of %s", cmd.CommandPath(), args[0], strings.Join(words, ", "))}
		}
		return nil
	}
}

type word struct {
	to    *string
	words []string
}

// EnvFlag defines a flag whose default is the value of an environment variable, or else the
// fallback. short is its one-letter name, or "".
func EnvFlag(f *pflag.FlagSet, to *string, name, short, env, fallback, usage string) {
	f.StringVarP(to, name, short, fallback, usage+" (environment: "+env+")")
	if v := os.Getenv(env); v != "" {
		*to = v
	}
}

// Word returns a flag that takes one of several words. The flag stores the word in to, beginning with
// initial.
func Word(to *string, initial string, words ...string) pflag.Value {
	*to = initial
	return &word{to, words}
}

func (w *word) String() string { return *w.to }
func (w *word) Type() string   { return strings.Join(w.words, "|") }
func (w *word) Set(s string) error {
	if !slices.Contains(w.words, s) {
		return fmt.Errorf("use one of %s", strings.Join(w.words, ", "))
	}
	*w.to = s
	return nil
}

// quantity is a flag that takes a number with its unit.
type quantity[T any] struct {
	to     *T
	kind   string
	parse  func(string) (T, error)
	format func(T) string
}

// RateFlag returns a flag that takes a rate in bits per second, like 300Mbit.
func RateFlag(to *float64) pflag.Value {
	return &quantity[float64]{to, "rate", units.ParseRate, units.FormatRate}
}

// SizeFlag returns a flag that takes a size in bytes, like 100MB.
func SizeFlag(to *int64) pflag.Value {
	return &quantity[int64]{to, "size", units.ParseSize, units.FormatSize}
}

// ShareFlag returns a flag that takes a share, like 0.05%.
func ShareFlag(to *float64) pflag.Value {
	return &quantity[float64]{to, "share", units.ParseShare, units.FormatShare}
}

func (q *quantity[T]) String() string { return q.format(*q.to) }
func (q *quantity[T]) Type() string   { return q.kind }
func (q *quantity[T]) Set(s string) (err error) {
	*q.to, err = q.parse(s)
	return err
}
