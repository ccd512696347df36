"use strict";
// A page opened from a disk may start no worker, and the theme's search is one. There it runs in a
// hidden frame instead, which the page talks to as if it were a worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #waiting = [];
    #frame;

    constructor(address) {
      super();
      const holder = document.createElement("iframe");
      holder.hidden = true;
      document.body.append(holder);
      this.#frame = holder.contentWindow;
      this.#frame.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = this.#frame.document.createElement("script");
      script.src = address;
      script.addEventListener("load", () => {
        const waiting = this.#waiting;
        this.#waiting = null;
        for (const data of waiting) this.postMessage(data);
      });
      this.#frame.document.body.append(script);
    }

    postMessage(data) {
      if (this.#waiting) this.#waiting.push(data);
      else this.#frame.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
