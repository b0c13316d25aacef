package client_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/stockade-dev/stockade/supervisor/api"
	"github.com/stockade-dev/stockade/supervisor/client"
)

// A command in a session of its own, with the caller's directory as its workspace.
func Example() {
	ctx := context.Background()
	c := client.New("/run/stockade/stockade.sock")

	open, err := c.Open(ctx, api.SessionOpen{
		Target: api.Target{Local: &api.Local{
			Mounts: []api.Mount{{HostPath: "/home/alice/project", GuestPath: "/workspace", Mode: "rw"}},
		}},
		Profile: "workspace",
	})
	if err != nil {
		log.Fatal(err) // the supervisor cannot be reached, or did not understand
	}
	if open.Outcome != api.OutcomeOK {
		log.Fatalf("%s: %v", open.Outcome, open.Deny) // a refusal is an answer, with a receipt
	}
	defer c.Close(ctx, api.SessionClose{SessionID: open.SessionID})

	ran, err := c.Exec(ctx, api.Exec{SessionID: open.SessionID, Argv: []string{"make", "test"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ran.Payload.Exec.ExitCode, ran.IntentID)
}

// Output as it comes.
func ExampleClient_ExecStream() {
	ctx := context.Background()
	c := client.New("/run/stockade/stockade.sock").WithScope(api.Scope{AgentID: "reviewer"})
	_, err := c.ExecStream(ctx, api.Exec{SessionID: "s-…", Argv: []string{"make"}}, func(e api.Event) error {
		switch e.Stream {
		case "stdout":
			os.Stdout.Write(e.Bytes)
		case "stderr":
			os.Stderr.Write(e.Bytes)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
