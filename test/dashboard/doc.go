// Package dashboard opens the dashboard in headless Chromium, against a
// controller and Open vSwitch in the lab. What Chromium does stands in the
// TypeScript files of dashboard/browser; screenshots are left in out/dashboard.
package dashboard
