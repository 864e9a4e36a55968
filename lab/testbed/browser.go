package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/sluice-net/sluice/lab"
)

// Browser is a headless Chromium on a host of a lab. Its methods must not be called concurrently.
type Browser struct {
	log    *os.File
	page   context.Context // the context that chromedp's functions need
	cancel context.CancelFunc
}

// StartBrowser starts Chromium on a host and writes its output to a file. flags are further flags
// of Chromium without the dashes: names, or names and values joined by "=".
func StartBrowser(ctx context.Context, host *lab.LiveHost, log string, flags ...string) (*Browser, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start Chromium: %w", err)
	}
	// chromedp talks to Chromium by a pipe, which works across network namespaces.
	options := slices.Concat(chromedp.DefaultExecAllocatorOptions[:], []chromedp.ExecAllocatorOption{
		chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.CombinedOutput(out),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("autoplay-policy", "no-user-gesture-required"),
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			there := host.Command(ctx, cmd.Path, cmd.Args[1:]...)
			cmd.Path, cmd.Args = there.Path, there.Args
		}),
	})
	for _, f := range flags {
		if name, value, has := strings.Cut(f, "="); has {
			options = append(options, chromedp.Flag(name, value))
		} else {
			options = append(options, chromedp.Flag(name, true))
		}
	}
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(ctx), options...)
	tab, closePage := chromedp.NewContext(allocator)
	b := &Browser{log: out, page: tab, cancel: func() { closePage(); stop() }}
	// The first action starts the browser, and the end of that action's context would end it.
	stopping := context.AfterFunc(ctx, closePage)
	defer stopping()
	if _, err := chromedp.Run(tab, chromedp.Navigate("about:blank")); err != nil {
		b.Close()
		return nil, fmt.Errorf("start Chromium: %w: %s", err, Tail(log, lastWords))
	}
	return b, nil
}

// inPage performs an action in the page, until ctx ends.
func inPage[T any](ctx context.Context, b *Browser, action chromedp.Action[T]) (T, error) {
	joined, cancel := context.WithCancelCause(b.page)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	return chromedp.Run(joined, action)
}

// Open opens a URL.
func (b *Browser) Open(ctx context.Context, url string) error {
	if _, err := inPage(ctx, b, chromedp.Navigate(url)); err != nil {
		return fmt.Errorf("open %s: %w", url, err)
	}
	return nil
}

// Do runs a script in the page.
func (b *Browser) Do(ctx context.Context, script string) error {
	_, err := inPage(ctx, b, chromedp.Evaluate[chromedp.Void](script))
	if err != nil {
		return fmt.Errorf("in the page: %w", err)
	}
	return nil
}

// InPage returns the value of an expression in the page, or of the promise that it returns.
func InPage[T any](ctx context.Context, b *Browser, expression string) (T, error) {
	v, err := inPage(ctx, b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		return v, fmt.Errorf("in the page: %w", err)
	}
	return v, nil
}

// Press presses a key in the page. key is one of chromedp's package kb.
func (b *Browser) Press(ctx context.Context, key string) error {
	if _, err := inPage(ctx, b, chromedp.KeyEvent(key)); err != nil {
		return fmt.Errorf("press a key: %w", err)
	}
	return nil
}

// Before makes every page that is opened from now on run a script before its own scripts.
func (b *Browser) Before(ctx context.Context, script string) error {
	_, err := inPage(ctx, b, func(ctx context.Context, t *chromedp.Target) (page.AddScriptToEvaluateOnNewDocumentResult, error) {
		return cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	})
	if err != nil {
		return fmt.Errorf("before the page: %w", err)
	}
	return nil
}

// Listen calls f with each event of the page, as chromedp.Listen does.
func (b *Browser) Listen(f func(event any)) error { return chromedp.Listen(b.page, f) }

// Kill ends the browser at once, as a crash would. It does not close the browser's connections
// properly.
func (b *Browser) Kill() {
	_ = chromedp.FromContext(b.page).Browser.Process().Kill() // It fails only if the process has ended already.
	b.Close()
}

// Close ends the browser.
func (b *Browser) Close() {
	b.cancel()
	_ = b.log.Close() // Later output is not needed.
}
