package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-kv/holdfast/certs"
)

// healthCommand returns the health check for containers that have no shell and
// no curl.
func healthCommand() *cobra.Command {
	var url, ca string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Exit 0 if the node answers its health check (for container health checks)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			if req.URL.Path == "" {
				req.URL.Path = "/readyz"
			}
			client := &http.Client{}
			if ca != "" {
				pool, err := certs.Authorities(ca)
				if err != nil {
					return fmt.Errorf("--tls-ca-cert-file: %w", err)
				}
				cfg := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
				client.Transport = &http.Transport{TLSClientConfig: cfg}
			}
			res, err := client.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				text, err := io.ReadAll(io.LimitReader(res.Body, 512))
				return errors.Join(fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(text)), err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&url, "url", "http://127.0.0.1:8379/readyz",
		"address of the health check of the node; the default path is /readyz")
	cmd.Flags().StringVar(&ca, "tls-ca-cert-file", "",
		"PEM file with the authorities that sign the node's certificate, if --url begins with https and this machine "+
			"does not know them")
	return cmd
}
