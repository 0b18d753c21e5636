// Keeps the end of a scroller in sight while it grows, unless the person has scrolled up.

const NEAR_END_PX = 30;

export class EndFollower {
  follows = true;
  private top = 0;

  constructor(
    private readonly scroller: HTMLElement,
    changed: () => void = () => {},
  ) {
    scroller.addEventListener("scroll", () => {
      this.scrolled();
      changed();
    });
  }

  /** Growing moves nothing; only a person moves it up. */
  private scrolled(): void {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    if (scrollHeight - scrollTop - clientHeight < NEAR_END_PX) this.follows = true;
    else if (scrollTop < this.top - 1) this.follows = false;
    this.top = scrollTop;
  }

  /** To be called whenever something was added or taken away. */
  keep(): void {
    if (this.follows) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.top = this.scroller.scrollTop;
  }
}
