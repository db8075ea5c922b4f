// Browsers refuse workers to pages that are opened from the disk. The search of the documentation
// needs one: here it lives in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inside = this.frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html><html><body></body></html>")
      inside.document.close()
      inside.IFrameWorker = true // the theme's worker asks for this name
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve())
      this.load(url).then(() => {
        this.ready = true
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      })
    }

    load(url) {
      const inside = this.frame.contentWindow.document
      const script = inside.createElement("script")
      script.src = url
      inside.body.appendChild(script)
      return new Promise((done, failed) => {
        script.onload = done
        script.onerror = failed
      })
    }

    postMessage(data) {
      if (!this.ready) this.waiting.push(data)
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
