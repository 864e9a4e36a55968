package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

const (
	skipsFile      = ".ci/skips"
	quarantineFile = ".ci/quarantine"
)

func main() {
	ok, err := run(os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run runs go test and says whether all is as it should be.
func run(out io.Writer, args []string) (ok bool, err error) {
	skips, err := readList(skipsFile)
	if err != nil {
		return false, err
	}
	quarantine, err := readList(quarantineFile)
	if err != nil {
		return false, err
	}
	module, err := exec.Command("go", "list", "-m").Output()
	if err != nil {
		return false, fmt.Errorf("go list -m: %w", err)
	}
	s := suite{out: out, module: strings.TrimSpace(string(module)), skips: skips, quarantine: quarantine, strict: os.Getenv("CI") == "true", test: goTest}
	return s.run(args)
}

// suite is a run with everything that it depends on.
type suite struct {
	out               io.Writer
	module            string
	skips, quarantine list
	strict            bool // unlisted skips fail
	// test runs go test -json and hands over what it writes.
	test func(args []string, events func(io.Reader) error) error
}

// goTest runs go test with arguments. That a test failed is no error.
func goTest(args []string, events func(io.Reader) error) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = events(out)
	var exit *exec.ExitError
	if waited := cmd.Wait(); !errors.As(waited, &exit) {
		err = errors.Join(err, waited)
	}
	return err
}

func (s *suite) run(args []string) (bool, error) {
	c, err := s.once(args)
	if err != nil {
		return false, err
	}
	failed := len(c.failures)
	if failed > 0 && s.mayRepeat(c.failures) {
		failed, err = s.repeat(args, c.failures)
		if err != nil {
			return false, err
		}
	}
	unlisted := s.tellSkips(c.skips)
	for _, x := range c.slowest {
		fmt.Fprintf(s.out, "slow: %6.1f s  %s\n", x.seconds, x.test)
	}
	fmt.Fprintf(s.out, "%d packages:\n%d passed, %d failed, %d skipped\n", c.packages, c.tests, len(c.failures), len(c.skips))
	for _, f := range c.failures {
		fmt.Fprintf(s.out, "FAILED: %s\n", f.name(c.module))
	}
	if c.packages == 0 {
		return false, errors.New("go test has run no package")
	}
	return failed == 0 && unlisted == 0, nil
}

func (s *suite) once(args []string) (*collector, error) {
	c := newCollector(s.out, s.module)
	return c, s.test(args, c.read)
}

// mayRepeat says whether all that has failed is in quarantine.
func (s *suite) mayRepeat(failures []failure) bool {
	return !slices.ContainsFunc(failures, func(f failure) bool {
		_, listed := s.quarantine.reason(f.name(s.module + "/"))
		return f.test == "" || f.certain || !listed && !s.partsListed(f, failures)
	})
}

// partsListed says whether a test has failed by a part of it that is in quarantine.
func (s *suite) partsListed(f failure, failures []failure) bool {
	found := false
	for _, part := range failures {
		if part.pkg == f.pkg && strings.HasPrefix(part.test, f.test+"/") {
			if _, listed := s.quarantine.reason(part.name(s.module + "/")); !listed {
				return false
			}
			found = true
		}
	}
	return found
}

// repeat runs what has failed once more, each test alone, and counts what fails again.
func (s *suite) repeat(args []string, failures []failure) (failed int, err error) {
	flags := flagsOf(args)
	done := map[string]bool{}
	for _, f := range failures {
		top, _, _ := strings.Cut(f.test, "/")
		name := failure{pkg: f.pkg, test: top}.name(s.module + "/")
		if done[name] {
			continue
		}
		done[name] = true
		why, _ := s.quarantine.reason(f.name(s.module + "/"))
		fmt.Fprintf(s.out, "QUARANTINE: %s failed, see above, and is run again: %s\n", name, why)
		again, err := s.once(append(slices.Clone(flags), "-count=1", "-run", "^"+regexp.QuoteMeta(top)+"$", f.pkg))
		if err != nil {
			return failed, err
		}
		failed += len(again.failures)
	}
	return failed, nil
}

// flagsOf are the arguments of go test without packages and without its choice of tests.
func flagsOf(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "-run":
			i++
		case slices.Contains([]string{"-p", "-parallel", "-timeout", "-exec"}, a):
			out = append(out, a, args[i+1])
			i++
		case strings.HasPrefix(a, "-"):
			out = append(out, a)
		}
	}
	return out
}

// tellSkips prints what was skipped and why, and counts what may not be.
func (s *suite) tellSkips(all []skip) (unlisted int) {
	for _, x := range all {
		why, listed := s.skips.reason(x.test)
		switch {
		case listed:
			fmt.Fprintf(s.out, "skipped: %s: %s (allowed: %s)\n", x.test, x.output, why)
		case s.strict:
			unlisted++
			fmt.Fprintf(s.out, "SKIPPED: %s: %s: have it run, or list it with the reason in %s\n", x.test, x.output, skipsFile)
		default:
			fmt.Fprintf(s.out, "SKIPPED: %s: %s\n", x.test, x.output)
		}
	}
	return unlisted
}
